-- Logins for BI tools. A login is a member of hansei_analyst and reads the rows of the tenant that `analytics.logins` names for
-- current_user. No setting has a part in this rule, so a login cannot choose another tenant.
do $$
begin
    if not exists (select from pg_roles where rolname = 'hansei_analyst') then
        create role hansei_analyst nologin;
    end if;
end $$;

create table analytics.logins (
    role_name name not null,
    tenant_id uuid not null,
    created_at timestamptz default now() not null,
    constraint logins_pkey primary key (role_name)
);

alter table analytics.logins enable row level security;
alter table analytics.logins force row level security;
create policy logins_own on analytics.logins for select to hansei_analyst using (role_name = current_user);
create policy logins_owner on analytics.logins to current_user using (true) with check (true);

-- What the views read. A trace shows its identity and outcome, but not its text.
do $$
declare
    read_tables constant text[] := array['bullet_spans', 'bullet_verdicts', 'curated_lessons', 'llm_calls', 'memories', 'memory_links', 'memory_revisions',
        'memory_usage', 'memory_vectors', 'playbook_versions', 'playbooks', 'postings', 'retrievals', 'runs', 'traces'];
    table_name text;
begin
    foreach table_name in array read_tables loop
        execute format(
            'create policy %I on %I for select to hansei_analyst'
            ' using (tenant_id = (select l.tenant_id from analytics.logins l where l.role_name = current_user))',
            table_name || '_analyst', table_name
        );
        if table_name <> 'traces' then
            execute format('grant select on %I to hansei_analyst', table_name);
        end if;
    end loop;
end $$;

grant select (tenant_id, id, project_id, task_key, playbook, outcome, state, used_bullet_keys, retrieval_id, duplicate_of, created_at)
    on traces to hansei_analyst;
grant usage on schema public, analytics to hansei_analyst;
grant select on all tables in schema analytics to hansei_analyst;
grant select on llm_call_details, lesson_costs to hansei_analyst;

-- Creates a login for one tenant and returns its name, which is random, because every login of a server can read all names.
-- p_password is a SCRAM-SHA-256 verifier, so that no password is in a statement.
create function analytics.create_login(p_tenant_id uuid, p_password text) returns text language plpgsql as $$
declare
    login text := 'hansei_sql_' || substr(replace(gen_random_uuid()::text, '-', ''), 1, 12);
begin
    execute format('create role %I login nosuperuser nocreatedb nocreaterole nobypassrls noreplication connection limit 5 password %L',
                   login, p_password);
    execute format('grant hansei_analyst to %I with inherit true, set false', login);
    execute format('grant connect on database %I to %I', current_database(), login);
    -- A login must not fill the disk with temporary tables. Without effect, and with a warning, if another role owns the database.
    execute format('revoke temporary on database %I from public', current_database());
    execute format('alter role %I set search_path = analytics, public', login);
    execute format('alter role %I set default_transaction_read_only = on', login);
    execute format('alter role %I set statement_timeout = ''30s''', login);
    execute format('alter role %I set lock_timeout = ''2s''', login);
    execute format('alter role %I set idle_in_transaction_session_timeout = ''60s''', login);
    execute format('alter role %I set timezone = ''UTC''', login);
    insert into analytics.logins (role_name, tenant_id) values (login, p_tenant_id);
    return login;
end $$;

-- Deletes a login of a tenant. False if this tenant has no such login.
create function analytics.drop_login(p_tenant_id uuid, p_role_name text) returns boolean language plpgsql as $$
begin
    delete from analytics.logins where role_name = p_role_name and tenant_id = p_tenant_id;
    if not found then
        return false;
    end if;
    execute format('revoke connect on database %I from %I', current_database(), p_role_name);
    execute format('drop role %I', p_role_name);
    return true;
end $$;

revoke execute on function analytics.create_login, analytics.drop_login from public;
