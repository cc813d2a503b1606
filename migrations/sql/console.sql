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
