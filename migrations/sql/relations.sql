-- What memories mention and which ones resemble each other. Search uses both to widen its results (`related`).

-- A tool, an error category, a file or a library that memories mention.
create table entities (
    tenant_id uuid not null,
    id uuid not null,
    project_id text not null,
    type text not null,
    name text not null,
    created_at timestamptz default now() not null,
    constraint entities_pkey primary key (tenant_id, id),
    constraint entities_tenant_id_project_id_type_name_key unique (tenant_id, project_id, type, name),
    constraint entities_type_check check (type in ('tool', 'error', 'file', 'library'))
);

create table memory_entities (
    tenant_id uuid not null,
    memory_id uuid not null,
    entity_id uuid not null,
    constraint memory_entities_pkey primary key (tenant_id, memory_id, entity_id),
    constraint memory_entities_tenant_id_memory_id_fkey foreign key (tenant_id, memory_id) references memories (tenant_id, id) on delete cascade,
    constraint memory_entities_tenant_id_entity_id_fkey foreign key (tenant_id, entity_id) references entities (tenant_id, id) on delete cascade
);

create index memory_entities_entity_id_idx on memory_entities (tenant_id, entity_id);

-- The cluster of a memory: its oldest member.
create table memory_clusters (
    tenant_id uuid not null,
    memory_id uuid not null,
    cluster_id uuid not null,
    constraint memory_clusters_pkey primary key (tenant_id, memory_id),
    constraint memory_clusters_tenant_id_memory_id_fkey foreign key (tenant_id, memory_id) references memories (tenant_id, id) on delete cascade
);

create index memory_clusters_cluster_id_idx on memory_clusters (tenant_id, cluster_id);
