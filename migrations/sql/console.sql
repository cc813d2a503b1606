-- Logins to the console. The cookie holds the token; only its SHA-256 is stored.
create table console_sessions (
    tenant_id uuid not null,
    id uuid not null,
    key_id uuid not null,
    secret_hash bytea not null,
    last_used_at timestamptz default now() not null,
    expires_at timestamptz not null,
    created_at timestamptz default now() not null,
    constraint console_sessions_pkey primary key (tenant_id, id),
    constraint console_sessions_tenant_id_secret_hash_key unique (tenant_id, secret_hash)
);

-- The login with which the console runs SQL of a tenant. PostgreSQL asks for the password, so it is stored as it is.
create table sql_credentials (
    tenant_id uuid not null,
    role_name text not null,
    password text not null,
    created_at timestamptz default now() not null,
    constraint sql_credentials_pkey primary key (tenant_id)
);

-- Reports of `hansei eval` that were published. `created_at` is the time of the plan.
create table evaluation_reports (
    tenant_id uuid not null,
    id uuid not null,
    project_id text not null,
    evaluation_id text not null,
    playbook text,
    summary jsonb default '{}' not null,
    report jsonb default '{}' not null,
    actor text not null,
    created_at timestamptz not null,
    published_at timestamptz default now() not null,
    constraint evaluation_reports_pkey primary key (tenant_id, id),
    constraint evaluation_reports_tenant_id_project_id_evaluation_id_key unique (tenant_id, project_id, evaluation_id)
);

create index evaluation_reports_created_at_idx on evaluation_reports (tenant_id, project_id, created_at desc, id desc);

-- Statements that people saved in the console.
create table saved_statements (
    tenant_id uuid not null,
    id uuid not null,
    name text not null,
    statement text not null,
    saved_by text not null,
    updated_at timestamptz default now() not null,
    constraint saved_statements_pkey primary key (tenant_id, id),
    constraint saved_statements_tenant_id_name_key unique (tenant_id, name)
);
