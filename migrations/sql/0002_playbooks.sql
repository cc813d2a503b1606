-- Playbooks as rows: what a playbook is, how it changed, what was judged, what was handed out.

create table playbooks (
    tenant_id uuid not null,
    scope integer not null,
    project_id text not null,
    name text not null,
    version integer default '0' not null,
    active integer default '0' not null,
    sections jsonb not null,
    last_numbers jsonb default '{}' not null,
    aliases jsonb default '{}' not null,
    token_budget integer,
    max_bullets integer,
    review text default 'off' not null,
    created_at timestamptz default now() not null,
    updated_at timestamptz default now() not null,
    deleted_at timestamptz,
    constraint playbooks_pkey primary key (tenant_id, scope),
    constraint playbooks_tenant_id_project_id_name_key unique (tenant_id, project_id, name),
    constraint playbooks_tenant_id_scope_fkey foreign key(tenant_id, scope) references scopes (tenant_id, scope),
    constraint playbooks_review_check check (review in ('off', 'required'))
);

create table playbook_versions (
    tenant_id uuid not null,
    scope integer not null,
    version integer not null,
    change text not null,
    added integer not null,
    updated integer not null,
    removed integer not null,
    active integer not null,
    sections jsonb,
    reason text,
    actor text,
    run_id uuid,
    created_at timestamptz default now() not null,
    constraint playbook_versions_pkey primary key (tenant_id, scope, version),
    constraint playbook_versions_tenant_id_scope_fkey foreign key(tenant_id, scope) references playbooks (tenant_id, scope)
);

create index playbook_versions_time_idx on playbook_versions (tenant_id, scope, created_at);

create table bullet_evaluations (
    tenant_id uuid not null,
    id uuid not null,
    bullet_id uuid not null,
    trace_id uuid,
    judge text not null,
    tag text not null,
    reason text,
    evidence jsonb default '{}' not null,
    render_id uuid,
    memory_id uuid,
    actor text,
    run_id uuid,
    created_at timestamptz default now() not null,
    updated_at timestamptz default now() not null,
    constraint bullet_evaluations_pkey primary key (tenant_id, id),
    constraint bullet_evaluations_tenant_id_trace_id_bullet_id_judge_key unique (tenant_id, trace_id, bullet_id, judge),
    constraint bullet_evaluations_tenant_id_bullet_id_fkey foreign key(tenant_id, bullet_id) references memories (tenant_id, id),
    constraint bullet_evaluations_judge_check check (judge in ('human', 'test', 'llm', 'rules', 'outcome')),
    constraint bullet_evaluations_tag_check check (tag in ('helpful', 'harmful', 'neutral'))
);

create index bullet_evaluations_bullet_idx on bullet_evaluations (tenant_id, bullet_id);

create table servings (
    tenant_id uuid not null,
    render_id uuid not null,
    scope integer not null,
    version integer not null,
    kind text not null,
    query text not null,
    keys text[] default '{}' not null,
    scores real[] default '{}' not null,
    created_at timestamptz default now() not null,
    constraint servings_pkey primary key (tenant_id, render_id),
    constraint servings_kind_check check (kind in ('search', 'render'))
);

create index servings_listed_idx on servings (tenant_id, scope, created_at desc);

create table memory_usage (
    tenant_id uuid not null,
    memory_id uuid not null,
    uses bigint not null,
    last_used_at timestamptz default now() not null,
    constraint memory_usage_pkey primary key (tenant_id, memory_id)
);

create table playbook_proposals (
    tenant_id uuid not null,
    id uuid not null,
    scope integer not null,
    state text default 'waiting' not null,
    deltas jsonb not null,
    sources jsonb default '{}' not null,
    reason text,
    actor text,
    run_id uuid,
    version integer,
    decided_by text,
    decided_reason text,
    decided_at timestamptz,
    created_at timestamptz default now() not null,
    constraint playbook_proposals_pkey primary key (tenant_id, id),
    constraint playbook_proposals_tenant_id_scope_fkey foreign key(tenant_id, scope) references playbooks (tenant_id, scope),
    constraint playbook_proposals_state_check check (state in ('waiting', 'accepted', 'rejected'))
);

create index playbook_proposals_listed_idx on playbook_proposals (tenant_id, scope, created_at desc, id desc);
