-- The secret with which the retrieval IDs of a tenant are signed. Created when the tenant first retrieves.
create table retrieval_secrets (
    tenant_id uuid not null,
    secret bytea not null,
    created_at timestamptz default now() not null,
    constraint retrieval_secrets_pkey primary key (tenant_id)
);
