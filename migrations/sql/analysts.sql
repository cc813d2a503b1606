-- Logins for BI tools. A login is a member of hansei_analyst and reads the rows of the tenant that `analytics.logins` names for it. It has no
-- right on a table: it calls functions that bind this tenant (login_views.py).
do $$
begin
    if not exists (select from pg_roles where rolname = 'hansei_analyst') then
        create role hansei_analyst nologin;
    end if;
end $$;

create schema analytics;

create table analytics.logins (
    role_name name not null,
    tenant_id uuid not null,
    created_at timestamptz default now() not null,
    constraint logins_pkey primary key (role_name)
);

alter table analytics.logins enable row level security;
alter table analytics.logins force row level security;
create policy logins_owner on analytics.logins to current_user using (true) with check (true);

-- Binds the tenant of the login and returns it; null if it is suspended or erased. A login cannot change session_user. Only functions that run
-- with the owner's rights call it; for the login itself, the binding opens nothing.
create function analytics.bind_login() returns uuid language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    tenant uuid := (
        select l.tenant_id
        from analytics.logins l join public.tenants t on t.id = l.tenant_id and t.status = 'active'
        where l.role_name = session_user
    );
begin
    perform set_config('hansei.tenant_id', tenant::text, true);
    return tenant;
end $$;

-- In these functions, a statement that reads pg_stat_activity reads no table: Citus would run it without the rights of the view.
-- Ends transactions of logins that are open for ten minutes, because they would keep VACUUM from removing rows and fill the queue of
-- notifications, and the sessions of logins whose tenant is not active. Returns how many. The first statement reads only catalogs: it must not
-- wait for a table that the transaction of a login has locked.
create function analytics.end_login_sessions(p_max_transaction interval default '10 minutes') returns bigint language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $$
declare
    inactive_logins name[];
    transactions bigint;
    sessions bigint;
begin
    select count(*) filter (where pg_terminate_backend(a.pid)) into transactions
    from pg_stat_activity a
    join pg_auth_members m on m.member = a.usesysid and m.roleid = 'hansei_analyst'::regrole and not m.admin_option
    where a.datname = current_database() and a.xact_start < now() - p_max_transaction;

    select array_agg(l.role_name) into inactive_logins
    from analytics.logins l left join public.tenants t on t.id = l.tenant_id where t.status is distinct from 'active';
    select count(*) filter (where pg_terminate_backend(a.pid)) into sessions
    from pg_stat_activity a
    where a.datname = current_database() and a.usename = any(inactive_logins)
      and (a.xact_start < now() - p_max_transaction) is not true;
    return transactions + sessions;
end $$;

-- The sessions of logins, with their parallel workers, which have a leader.
create function analytics.login_sessions() returns table (pid integer, role_name name, leader_pid integer, transaction_start timestamptz) language sql security definer set search_path = pg_catalog, pg_temp as $$
    select a.pid, a.usename, a.leader_pid, a.xact_start
    from pg_stat_activity a
    join pg_auth_members m on m.member = a.usesysid and m.roleid = 'hansei_analyst'::regrole and not m.admin_option
    where a.datname = current_database()
$$;
grant usage on schema analytics to hansei_app, hansei_worker, hansei_analyst;
grant execute on function analytics.login_sessions to hansei_app, hansei_worker;
grant execute on function analytics.end_login_sessions to hansei_worker;

-- The bullets that a playbook had at a time. Deleted bullets are left out.
create function analytics.playbook_at(p_playbook text, p_at timestamptz default now(), p_project text default 'default')
returns table (key text, section text, title text, when_to_use text, content text, tags text[], status text, pinned boolean, version integer)
language plpgsql stable security definer set search_path = pg_catalog, public, pg_temp set plan_cache_mode = force_generic_plan set client_min_messages = warning as $$
#variable_conflict use_column
declare
    tenant uuid := analytics.bind_login();
begin
    return query
    select b.key, s.section, s.title, s.when_to_use, s.content, s.tags, s.status, s.pinned, v.version
    from playbooks p
    cross join lateral (
        select x.version from playbook_versions x
        where x.tenant_id = tenant and x.scope_id = p.scope_id and x.created_at <= p_at
        order by x.created_at desc limit 1
    ) v
    join memories b on b.tenant_id = tenant and b.scope_id = p.scope_id and b.key is not null
    cross join lateral (
        select b.section, b.title, b.when_to_use, b.content, b.tags, b.status, b.pinned where b.playbook_version <= v.version
        union all
        (select o.section, o.title, o.when_to_use, o.content, o.tags, o.status, o.pinned
         from bullet_spans o
         where b.playbook_version > v.version and o.tenant_id = tenant and o.bullet_id = b.id
           and o.until_version > v.version and o.from_version <= v.version
         order by o.until_version limit 1)
    ) s
    where p.tenant_id = tenant and p.name = p_playbook and p.project_id = p_project and s.status <> 'deleted';
end $$;

-- The bullets that differ between two times.
create function analytics.playbook_diff(p_playbook text, p_from timestamptz, p_to timestamptz default now(),
                                        p_project text default 'default')
returns table (key text, change text, section text, status_before text, status_after text, content_before text, content_after text)
language sql stable begin atomic
    select coalesce(b.key, a.key), case when b.key is null then 'added' when a.key is null then 'removed' else 'changed' end,
           coalesce(a.section, b.section), b.status, a.status, b.content, a.content
    from analytics.playbook_at(p_playbook, p_from, p_project) b
    full join analytics.playbook_at(p_playbook, p_to, p_project) a on a.key = b.key
    where b.key is null or a.key is null
       or (b.section, b.title, b.when_to_use, b.content, b.tags, b.status, b.pinned)
          is distinct from (a.section, a.title, a.when_to_use, a.content, a.tags, a.status, a.pinned); end;

grant execute on function analytics.playbook_at, analytics.playbook_diff to hansei_analyst;

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
    execute format('alter role %I set search_path = analytics', login);
    execute format('alter role %I set default_transaction_read_only = on', login);
    execute format('alter role %I set statement_timeout = ''30s''', login);
    execute format('alter role %I set lock_timeout = ''2s''', login);
    execute format('alter role %I set idle_in_transaction_session_timeout = ''60s''', login);
    execute format('alter role %I set max_parallel_workers_per_gather = 0', login);
    execute format('alter role %I set timezone = ''UTC''', login);
    -- A login cannot change these. A superuser lets the owner set them (embedded/superuser.sql). The text of an error comes from the login, and
    -- must not fill the log of the server.
    if has_parameter_privilege('temp_file_limit', 'SET') then
        execute format('alter role %I set temp_file_limit = ''256MB''', login);
    end if;
    if has_parameter_privilege('log_min_messages', 'SET') then
        execute format('alter role %I set log_min_messages = ''fatal''', login);
    end if;
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
    perform pg_terminate_backend(pid) from pg_stat_activity where usename = p_role_name;
    -- The rights of the login, and whatever it stored. Only a member of a role may do that.
    execute format('grant %I to %I', p_role_name, current_user);
    execute format('drop owned by %I', p_role_name);
    execute format('drop role %I', p_role_name);
    return true;
end $$;
