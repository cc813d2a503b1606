-- Lessons that wait for a curation of their playbook. There is no foreign key to playbooks: the check would wait for the lock of a playbook
-- that is being changed, while the learning step holds locks of its own.
create table inbox_lessons (
    tenant_id uuid not null,
    id uuid not null,
    scope_id integer not null,
    memory_id uuid not null,
    trace_id uuid,
    chain_id uuid not null,
    curation_run_id uuid,
    curation_count integer default 0 not null,
    last_reason text,
    created_at timestamptz default now() not null,
    constraint inbox_lessons_pkey primary key (tenant_id, scope_id, id),
    constraint inbox_lessons_tenant_id_scope_id_fkey foreign key(tenant_id, scope_id) references scopes (tenant_id, id)
);

-- Which run curates a playbook now, and which one takes the next lessons. Its row lock orders the two.
create table playbook_curations (
    tenant_id uuid not null,
    scope_id integer not null,
    active_run_id uuid,
    queued_run_id uuid,
    started_at timestamptz,
    consolidated_version integer default 0 not null,
    consolidated_count integer default 0 not null,
    consolidated_at timestamptz,
    constraint playbook_curations_pkey primary key (tenant_id, scope_id),
    constraint playbook_curations_tenant_id_scope_id_fkey foreign key(tenant_id, scope_id) references scopes (tenant_id, id)
);
