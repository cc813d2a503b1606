-- The secret with which the retrieval IDs of a tenant are signed. Created when the tenant first retrieves.
create table retrieval_secrets (
    tenant_id uuid not null,
    secret bytea not null,
    created_at timestamptz default now() not null,
    constraint retrieval_secrets_pkey primary key (tenant_id)
);

alter table retrieval_secrets enable row level security;
alter table retrieval_secrets force row level security;
create policy retrieval_secrets_tenant on retrieval_secrets to hansei_app, hansei_worker, current_user
    using (tenant_id = nullif(current_setting('hansei.tenant_id', true), '')::uuid)
    with check (tenant_id = nullif(current_setting('hansei.tenant_id', true), '')::uuid);
grant select, insert, update, delete on retrieval_secrets to hansei_app, hansei_worker;
