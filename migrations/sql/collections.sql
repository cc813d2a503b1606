-- Documents that searches and agents read. A collection is a scope of the search index; its chunks are memories of the layer `sm`.
create table collections (
    tenant_id uuid not null,
    id uuid not null,
    project_id text not null,
    name text not null,
    description text default '' not null,
    scope_id integer not null,
    chunk_tokens integer default 256 not null,
    state text default 'active' not null,
    created_at timestamptz default now() not null,
    updated_at timestamptz default now() not null,
    constraint collections_pkey primary key (tenant_id, id),
    constraint collections_tenant_id_scope_id_key unique (tenant_id, scope_id),
    constraint collections_tenant_id_scope_id_fkey foreign key(tenant_id, scope_id) references scopes (tenant_id, id),
    constraint collections_chunk_tokens_check check (chunk_tokens between 64 and 2048),
    constraint collections_state_check check (state in ('active', 'deleting'))
);

-- One document. `generation` counts how often it was split into chunks; only chunks of the last one stay.
create table documents (
    tenant_id uuid not null,
    id uuid not null,
    collection_id uuid not null,
    source text not null,
    title text,
    media_type text not null,
    byte_count integer not null,
    content_hash bytea not null,
    state text default 'queued' not null,
    error jsonb,
    page_count integer,
    chunk_count integer,
    stored_chunk_count integer default 0 not null,
    generation integer default 1 not null,
    run_id uuid,
    created_at timestamptz default now() not null,
    updated_at timestamptz default now() not null,
    constraint documents_pkey primary key (tenant_id, id),
    constraint documents_tenant_id_collection_id_source_key unique (tenant_id, collection_id, source),
    constraint documents_tenant_id_collection_id_fkey foreign key(tenant_id, collection_id) references collections (tenant_id, id),
    constraint documents_state_check check (state in ('queued', 'running', 'done', 'failed', 'deleting'))
);

create index documents_collection_id_created_at_idx on documents (tenant_id, collection_id, created_at desc, id desc);

-- The bytes of a document until its text is extracted, in parts of one megabyte.
create table document_parts (
    tenant_id uuid not null,
    document_id uuid not null,
    number integer not null,
    data bytea not null,
    constraint document_parts_pkey primary key (tenant_id, document_id, number),
    constraint document_parts_tenant_id_document_id_fkey foreign key(tenant_id, document_id) references documents (tenant_id, id) on delete cascade
);

-- The text of a document by page, with secrets replaced. Offsets of chunks refer to it.
create table document_pages (
    tenant_id uuid not null,
    document_id uuid not null,
    number integer not null,
    text text not null,
    constraint document_pages_pkey primary key (tenant_id, document_id, number),
    constraint document_pages_tenant_id_document_id_fkey foreign key(tenant_id, document_id) references documents (tenant_id, id) on delete cascade
);
