create table runs (
    tenant_id uuid not null,
    id uuid not null,
    project_id text default 'default' not null,
    kind text not null,
    state text default 'queued' not null,
    parent_id uuid,
    trace_id uuid,
    input jsonb default '{}' not null,
    attempts integer default '0' not null,
    max_attempts integer default '5' not null,
    lease_until timestamptz,
    lease_owner text,
    error jsonb,
    result jsonb,
    engine text,
    degraded boolean default 'false' not null,
    prompt_hash text,
    usage jsonb,
    created_at timestamptz default now() not null,
    started_at timestamptz,
    finished_at timestamptz,
    updated_at timestamptz default now() not null,
    constraint runs_pkey primary key (tenant_id, id)
);

create index runs_listed_idx on runs (tenant_id, created_at desc, id desc);

create index runs_by_state_idx on runs (tenant_id, state, created_at desc, id desc);

create index runs_by_trace_idx on runs (tenant_id, trace_id) where trace_id is not null;

create table idempotency_keys (
    tenant_id uuid not null,
    route text not null,
    key text not null,
    body_hash bytea not null,
    status integer,
    response jsonb,
    headers jsonb,
    lease_until timestamptz,
    created_at timestamptz default now() not null,
    constraint idempotency_keys_pkey primary key (tenant_id, route, key)
);

create table scopes (
    tenant_id uuid not null,
    scope integer not null,
    project_id text not null,
    area text not null,
    name text not null,
    created_at timestamptz default now() not null,
    constraint scopes_pkey primary key (tenant_id, scope),
    constraint scopes_tenant_id_project_id_area_name_key unique (tenant_id, project_id, area, name)
);

create table labels (
    tenant_id uuid not null,
    id integer not null,
    space text not null,
    name text not null,
    constraint labels_pkey primary key (tenant_id, id),
    constraint labels_tenant_id_space_name_key unique (tenant_id, space, name)
);

create table memory_vectors (
    tenant_id uuid not null,
    scope integer not null,
    model integer not null,
    n bigint not null,
    kind smallint not null,
    section integer,
    error_category integer,
    confidence real not null,
    importance real not null,
    created_at timestamptz not null,
    tag_ids integer[] not null,
    emb halfvec storage plain not null,
    constraint memory_vectors_pkey primary key (tenant_id, scope, model, n) include (kind, section, error_category, confidence, importance, created_at, tag_ids, emb)
)
 with (autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.02);

create table postings (
    tenant_id uuid not null,
    scope integer not null,
    term integer not null,
    n bigint not null,
    weight real not null,
    constraint postings_pkey primary key (tenant_id, scope, term, n) include (weight)
)
 with (autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.02);

create table scope_stats (
    tenant_id uuid not null,
    scope integer not null,
    id uuid not null,
    delta integer not null,
    constraint scope_stats_pkey primary key (tenant_id, scope, id) include (delta)
);

create table memory_revisions (
    tenant_id uuid not null,
    memory_id uuid not null,
    revision integer not null,
    scope integer not null,
    key text,
    section text,
    title text,
    when_to_use text,
    content text not null,
    tags text[] default '{}' not null,
    importance double precision not null,
    status text not null,
    pinned boolean not null,
    reason text,
    actor text,
    run_id uuid,
    created_at timestamptz default now() not null,
    constraint memory_revisions_pkey primary key (tenant_id, memory_id, revision)
);

create table tenants (
    id uuid not null,
    slug text not null,
    status text default 'active' not null,
    created_at timestamptz default now() not null,
    constraint tenants_pkey primary key (id),
    constraint tenants_slug_key unique (slug)
);

create table api_keys (
    tenant_id uuid not null,
    id uuid not null,
    name text default '' not null,
    secret_hash bytea not null,
    scopes text[] default '{}' not null,
    project_id text,
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz,
    created_at timestamptz default now() not null,
    constraint api_keys_pkey primary key (tenant_id, id),
    constraint api_keys_tenant_id_secret_hash_key unique (tenant_id, secret_hash)
);

create table traces (
    tenant_id uuid not null,
    id uuid not null,
    project_id text not null,
    external_id text,
    task_key text,
    parent_id uuid,
    session_id text,
    playbook text,
    task_description text,
    task_goal text,
    outcome text,
    state text default 'closed' not null,
    error jsonb,
    query text,
    generated_answer text,
    reasoning_steps jsonb,
    ground_truth jsonb,
    test_report text,
    used_keys text[] default '{}' not null,
    render_id uuid,
    related_memory_ids text[] default '{}' not null,
    language text,
    metadata jsonb default '{}' not null,
    event_count integer default '0' not null,
    content_hash bytea not null,
    created_at timestamptz default now() not null,
    updated_at timestamptz default now() not null,
    closed_at timestamptz,
    constraint traces_pkey primary key (tenant_id, id),
    constraint traces_tenant_id_project_id_external_id_key unique (tenant_id, project_id, external_id)
);

create index traces_open_idx on traces (tenant_id, updated_at) where state = 'open';

create index traces_attempts_idx on traces (tenant_id, project_id, task_key, created_at) where task_key is not null;

create index traces_listed_idx on traces (tenant_id, project_id, created_at desc, id desc);

create table memories (
    tenant_id uuid not null,
    id uuid not null,
    n bigint generated always as identity,
    project_id text not null,
    layer text not null,
    kind text not null,
    scope integer not null,
    key text,
    section text,
    title text,
    when_to_use text,
    content text not null,
    searchable_text text not null,
    keywords text[] default '{}' not null,
    tags text[] default '{}' not null,
    importance double precision default '0.5' not null,
    strength double precision default '1' not null,
    confidence double precision,
    helpful integer default '0' not null,
    harmful integer default '0' not null,
    neutral integer default '0' not null,
    witnesses integer default '1' not null,
    confidence_score double precision generated always as (case when helpful + harmful = 0 then 0.5 else helpful::float8 / (helpful + harmful) end) stored not null,
    usefulness double precision default '0.05' not null,
    status text default 'active' not null,
    pinned boolean default 'false' not null,
    source text not null,
    error_category text,
    outcome text,
    session_id text,
    trace_id uuid,
    source_event_ids text[] default '{}' not null,
    metadata jsonb default '{}' not null,
    terms integer[] default '{}' not null,
    tokenizer text not null,
    fingerprint bytea not null,
    revision integer default '1' not null,
    change_reason text,
    change_actor text,
    change_run uuid,
    created_at timestamptz default now() not null,
    updated_at timestamptz default now() not null,
    constraint memories_pkey primary key (tenant_id, id),
    constraint memories_tenant_id_n_key unique (tenant_id, n),
    constraint memories_tenant_id_scope_fkey foreign key(tenant_id, scope) references scopes (tenant_id, scope),
    constraint memories_importance_check check (importance between 0 and 1),
    constraint memories_status_check check (status in ('active', 'quarantined', 'archived', 'deleted'))
);

create unique index memories_key_idx on memories (tenant_id, scope, key) where key is not null;

create index memories_listed_idx on memories (tenant_id, project_id, kind, created_at desc, id desc);

create index memories_trace_idx on memories (tenant_id, trace_id) where trace_id is not null;

create index memories_said_idx on memories (tenant_id, scope, fingerprint);

create table trace_events (
    tenant_id uuid not null,
    trace_id uuid not null,
    seq integer not null,
    event_id text not null,
    event_type text not null,
    content text not null,
    timestamp timestamptz,
    metadata jsonb default '{}' not null,
    tool_name text,
    error jsonb,
    agent text,
    constraint trace_events_pkey primary key (tenant_id, trace_id, seq),
    constraint trace_events_tenant_id_trace_id_fkey foreign key(tenant_id, trace_id) references traces (tenant_id, id) on delete cascade
);

create table memory_links (
    tenant_id uuid not null,
    source_id uuid not null,
    relation text not null,
    target_kind text not null,
    target_id uuid not null,
    created_at timestamptz default now() not null,
    constraint memory_links_pkey primary key (tenant_id, source_id, relation, target_kind, target_id),
    constraint memory_links_tenant_id_source_id_fkey foreign key(tenant_id, source_id) references memories (tenant_id, id) on delete cascade
);

create index memory_links_target_idx on memory_links (tenant_id, target_id);
