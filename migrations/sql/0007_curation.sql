-- What the curator decided on a lesson, so that it is not asked again; `tidied_version`: up to where a playbook was tidied.

create table curated_lessons (
    tenant_id uuid not null,
    scope integer not null,
    fingerprint bytea not null,
    decision text not null,
    bullet_id uuid,
    memory_id uuid,
    run_id uuid,
    reason text,
    created_at timestamptz default now() not null,
    updated_at timestamptz default now() not null,
    constraint curated_lessons_pkey primary key (tenant_id, scope, fingerprint),
    constraint curated_lessons_tenant_id_scope_fkey foreign key(tenant_id, scope) references playbooks (tenant_id, scope),
    constraint curated_lessons_decision_check check (decision in ('added', 'updated', 'merged', 'kept', 'held', 'left_out'))
);

alter table playbooks add column tidied_version integer default '0' not null;

-- What waits to be reviewed, without reading a playbook through: the curator looks there for what search does not bring.
create index memories_aside_idx on memories (tenant_id, scope, n) where status = 'quarantined';
