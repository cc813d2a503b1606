-- The models a tenant's memories have vectors of. Small: one row per tenant, two or three while it moves from one to another.
create table embedding_models (
    tenant_id uuid not null,
    label text not null,
    provider text not null,
    name text,
    dimensions integer,
    base_url text,
    state text not null,
    since timestamptz default now() not null,
    constraint embedding_models_pkey primary key (tenant_id, label),
    constraint embedding_models_state_check check (state in ('active', 'filling', 'retiring'))
);

create unique index embedding_models_active_idx on embedding_models (tenant_id) where state = 'active';
create unique index embedding_models_filling_idx on embedding_models (tenant_id) where state = 'filling';

-- Finds what an older tokeniser indexed.
create index memories_tokenizer_idx on memories (tenant_id, tokenizer);
