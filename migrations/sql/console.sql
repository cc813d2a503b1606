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
