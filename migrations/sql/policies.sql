-- The service roles, and who may see and change what beside the tables with tenants' rows (migrations/rls.py).

-- The two service roles. They can log in once the operator or `hansei migrate` gives them a password.
do $$
declare
    service_role text;
begin
    foreach service_role in array array['hansei_app', 'hansei_worker'] loop
        if not exists (select from pg_roles where rolname = service_role) then
            execute format('create role %I nologin', service_role);
        end if;
        execute format('grant usage on schema public to %I', service_role);
    end loop;
end $$;

-- A tenant sees itself. The worker sees which tenants there are and nothing else. The owner administers all of them.
alter table tenants enable row level security;
alter table tenants force row level security;
create policy tenants_own on tenants to hansei_app
    using (id = nullif(current_setting('hansei.tenant_id', true), '')::uuid)
    with check (id = nullif(current_setting('hansei.tenant_id', true), '')::uuid);
create policy tenants_fan_out on tenants for select to hansei_worker using (true);
create policy tenants_owner on tenants to current_user using (true) with check (true);
grant select, insert, update on tenants to hansei_app;
grant select (id, status) on tenants to hansei_worker;

grant select on installation to hansei_app, hansei_worker;
grant insert, select on write_probes to hansei_app, hansei_worker;
grant select, insert, update, delete on tickets to hansei_app, hansei_worker;
grant usage, select on all sequences in schema public to hansei_app, hansei_worker;

-- Search binds the tenant itself, so only the service and the owner may call it.
revoke execute on function hansei_search from public;
grant execute on function hansei_search to hansei_app, hansei_worker, current_user;
