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

-- Whether a row belongs to the tenant of the login. Its cost is far below that of any operator, so the planner evaluates it before any condition
-- of the login that has one. Conditions without an operator come first (docs/decisions/row-level-security.md).
create function analytics.is_own(p_tenant_id uuid, p_login_tenant uuid) returns boolean language plpgsql immutable strict cost 1e-30 set search_path = pg_catalog, pg_temp as $$
begin
    return p_tenant_id = p_login_tenant;
end $$;

-- The tenant of the login; null if it is suspended or erased. A login cannot change session_user. It changes with the tenant's status, so it is
-- not immutable in PostgreSQL's sense, but it must be declared so: the planner then writes the tenant into the plan as a constant. A function that
-- is evaluated for each row reads pages, and PostgreSQL evaluates operators such as = and starts_with() of a login before its policy: EXPLAIN
-- (ANALYZE, BUFFERS) would count rows of all tenants that meet any condition. Of a suspended tenant, a statement without a plan reads nothing; a
-- prepared one ends with its session (end_login_sessions). It calls is_own, so that the first call for a row reads no catalog: conditions without an
-- operator (a boolean, a subscript) come even before is_own.
create function analytics.login_tenant() returns uuid language sql immutable security definer set search_path = pg_catalog, pg_temp as $$
    select l.tenant_id
    from analytics.logins l join public.tenants t on t.id = l.tenant_id and t.status = 'active'
    where l.role_name = session_user and analytics.is_own(t.id, l.tenant_id)
$$;
revoke execute on function analytics.login_tenant, analytics.is_own from public;
grant execute on function analytics.login_tenant, analytics.is_own to hansei_analyst;

-- In these functions, a join of pg_stat_activity with a table that Citus copies to its nodes would run without the rights of the view: hence
-- MATERIALIZED.
-- Ends transactions of logins that are open for ten minutes, because they would keep VACUUM from removing rows and fill the queue of
-- notifications, and the sessions of logins whose tenant is not active. Returns how many. The first statement reads only catalogs: it must not
-- wait for a table that the transaction of a login has locked.
create function analytics.end_login_sessions(p_max_transaction interval default '10 minutes') returns bigint language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $$
declare
    transactions bigint;
    sessions bigint;
begin
    select count(*) filter (where pg_terminate_backend(a.pid)) into transactions
    from pg_stat_activity a
    join pg_auth_members m on m.member = a.usesysid and m.roleid = 'hansei_analyst'::regrole and not m.admin_option
    where a.datname = current_database() and a.xact_start < now() - p_max_transaction;

    with logins as materialized (
        select l.role_name, t.status from analytics.logins l left join public.tenants t on t.id = l.tenant_id
    )
    select count(*) filter (where pg_terminate_backend(a.pid)) into sessions
    from pg_stat_activity a
    join logins l on l.role_name = a.usename
    where a.datname = current_database()
      and l.status is distinct from 'active' and (a.xact_start < now() - p_max_transaction) is not true;
    return transactions + sessions;
end $$;
revoke execute on function analytics.end_login_sessions from public;

-- The sessions of logins, with their parallel workers, which have a leader.
create function analytics.login_sessions() returns table (pid integer, role_name name, leader_pid integer, transaction_start timestamptz) language sql security definer set search_path = pg_catalog, pg_temp as $$
    with logins as materialized (select l.role_name from analytics.logins l)
    select a.pid, a.usename, a.leader_pid, a.xact_start
    from pg_stat_activity a
    join logins l on l.role_name = a.usename
    where a.datname = current_database()
$$;
revoke execute on function analytics.login_sessions from public;
grant usage on schema analytics to hansei_app, hansei_worker;
grant execute on function analytics.login_sessions to hansei_app, hansei_worker;
grant execute on function analytics.end_login_sessions to hansei_worker;

do $$
declare
    read_tables constant text[] := array['bullet_spans', 'bullet_verdicts', 'curated_lessons', 'llm_calls', 'memory_links', 'memory_revisions',
        'memories', 'memory_usage', 'memory_vectors', 'playbook_versions', 'playbooks', 'retrievals', 'runs', 'traces'];
    table_name text;
    rows_of_kinds text;
begin
    foreach table_name in array read_tables loop
        rows_of_kinds := case table_name
            -- A login sees bullets and the lessons and reflections that they come from, but neither documents nor episodes.
            when 'memories' then ' and kind in (''bullet'', ''reflection'', ''strategy'', ''insight'')'
            -- Of vectors, those of bullets. 4 is their number in memories/index/scopes.py.
            when 'memory_vectors' then ' and kind_id = 4'
            else ''
        end;
        -- One policy: the condition of a second one would come after conditions of the login.
        execute format('create policy %I on %I for select to hansei_analyst using (analytics.is_own(tenant_id, analytics.login_tenant()) and tenant_id = analytics.login_tenant()%s)',
                       table_name || '_analyst', table_name, rows_of_kinds);
    end loop;
end $$;

-- The columns that the views and functions read, and no other: the rest holds texts of traces, ground truth and evidence.
grant select (tenant_id, bullet_id, until_version, from_version, section, title, when_to_use, content, tags, status, pinned) on bullet_spans to
    hansei_analyst;
grant select (tenant_id, id, bullet_id, trace_id, judge, tag, retrieval_id, actor, confirmed, run_id, created_at) on bullet_verdicts to hansei_analyst;
grant select (tenant_id, scope_id, created_at) on curated_lessons to hansei_analyst;
grant select (tenant_id, id, run_id, project_id, provider, model, purpose, prompt_hash, status, error, finish_reason, input_tokens,
    output_tokens, cached_tokens, cache_write_tokens, cost_usd, latency_ms, request_id, created_at) on llm_calls to hansei_analyst;
grant select (tenant_id, id, seq, project_id, kind, scope_id, key, section, title, when_to_use, content, tags, helpful, harmful, neutral,
    observation_count, confidence_score, usefulness, status, terms, pinned, error_category, outcome, trace_id, revision, playbook_version, created_at,
    updated_at) on memories to hansei_analyst;
grant select (tenant_id, source_id, relation, target_kind, target_id, created_at) on memory_links to hansei_analyst;
grant select (tenant_id, memory_id, revision, playbook_version, scope_id, key, section, title, when_to_use, content, tags, status, pinned,
    change_reason, change_actor, change_run_id, change_type, created_at) on memory_revisions to hansei_analyst;
grant select (tenant_id, memory_id, use_count, last_used_at) on memory_usage to hansei_analyst;
grant select (tenant_id, scope_id, model_label_id, seq, kind_id, embedding) on memory_vectors to hansei_analyst;
grant select (tenant_id, scope_id, version, change_type, added_count, updated_count, removed_count, active_count, reason, actor, run_id, created_at)
    on playbook_versions to hansei_analyst;
grant select (tenant_id, scope_id, project_id, name, aliases, created_at, deleted_at) on playbooks to hansei_analyst;
grant select (tenant_id, id, scope_id, kind, query, bullet_keys, scores, holdout_candidate, held_out, advice_held_out, created_at) on retrievals to hansei_analyst;
grant select (tenant_id, id, project_id, kind, trace_id, playbook) on runs to hansei_analyst;
grant select (tenant_id, id, project_id, task_key, playbook, outcome, conflict, effective_outcome, used_bullet_keys, retrieval_id, created_at) on traces to hansei_analyst;
grant usage on schema public, analytics to hansei_analyst;
grant select on all tables in schema analytics to hansei_analyst;
grant select on llm_call_details, lesson_costs, counted_verdicts to hansei_analyst;

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

revoke execute on function analytics.create_login, analytics.drop_login from public;
