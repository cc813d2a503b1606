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

-- What a tenant has vectors of now is what serves it. A label says what made it: static-minilm-256/1, openai/NAME@DIMENSIONS, fastembed/NAME.
do $$
declare
    _tenant uuid;
begin
    for _tenant in select id from tenants loop
        perform set_config('hansei.tenant_id', _tenant::text, true);
        insert into embedding_models (tenant_id, label, provider, name, dimensions, state)
        select _tenant, l.name,
               case when l.name like 'static-%' then 'static' else split_part(l.name, '/', 1) end,
               case when l.name not like 'static-%' then regexp_replace(regexp_replace(l.name, '^[^/]*/', ''), '@\d+$', '') end,
               case when l.name ~ '@\d+$' then substring(l.name from '@(\d+)$')::int end,
               'active'
        from labels l
        cross join lateral (
            select max(v.n) n from scopes s, memory_vectors v
            where s.tenant_id = _tenant and v.tenant_id = _tenant and v.scope = s.scope and v.model = l.id
        ) newest
        where l.tenant_id = _tenant and l.space = 'model' and newest.n is not null
        order by newest.n desc
        limit 1;
    end loop;
    perform set_config('hansei.tenant_id', '', true);
end $$;
