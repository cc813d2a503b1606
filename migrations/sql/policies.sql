-- Who may see and change what. Row-level security is forced, so it also applies to the owner of the tables: the owner too accesses
-- one tenant at a time. The rule has no subquery, so that a table can be distributed by tenant. All policies are defined in this file.

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

-- Every table of a tenant's rows, with what the service roles may do. Only the history triggers write memory_revisions and
-- bullet_spans; a memory, an API key, a version and a record of a model call are never deleted by the service.
do $$
declare
    tenant_rule constant text := 'tenant_id = nullif(current_setting(''hansei.tenant_id'', true), '''')::uuid';
    everything constant text := 'select, insert, update, delete';
    bound record;
begin
    for bound in
        select * from (values
            ('api_keys', 'select, insert, update'),
            ('runs', everything),
            ('idempotency_keys', everything),
            ('traces', everything),
            ('trace_events', everything),
            ('trace_evaluations', everything),
            ('scopes', everything),
            ('labels', everything),
            ('memories', 'select, insert, update'),
            ('memory_vectors', everything),
            ('postings', everything),
            ('scope_stats', everything),
            ('memory_links', everything),
            ('memory_revisions', 'select'),
            ('memory_usage', everything),
            ('playbooks', everything),
            ('playbook_versions', 'select, insert'),
            ('playbook_proposals', everything),
            ('bullet_spans', 'select'),
            ('bullet_verdicts', everything),
            ('retrievals', everything),
            ('curated_lessons', everything),
            ('embedding_models', everything),
            ('llm_calls', 'select, insert'),
            ('budgets', everything),
            ('budget_reservations', everything)
        ) as bound_tables (table_name, privileges)
    loop
        execute format('alter table %I enable row level security', bound.table_name);
        execute format('alter table %I force row level security', bound.table_name);
        execute format(
            'create policy %I on %I to hansei_app, hansei_worker, current_user using (%s) with check (%s)',
            bound.table_name || '_tenant', bound.table_name, tenant_rule, tenant_rule
        );
        execute format('grant %s on %I to hansei_app, hansei_worker', bound.privileges, bound.table_name);
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

grant select on bullet_effects to hansei_app, hansei_worker;
grant select, insert, update, delete on pgqueuer, pgqueuer_log, pgqueuer_schedules, pgqueuer_statistics
    to hansei_app, hansei_worker;
grant usage, select on all sequences in schema public to hansei_app, hansei_worker;

-- Search binds the tenant itself, so only the service and the owner may call it.
revoke execute on function hansei_search from public;
grant execute on function hansei_search to hansei_app, hansei_worker, current_user;
