-- name: restrict_logins
-- What only a superuser can do, once in each database, after the roles exist. Docker runs this file after deploy/init.sql, and `hansei up` runs it
-- in its own server. Without it, a read-only login can take locks, fill the disk, keep transactions open and see what others do; `hansei doctor`
-- says so.
do $$
declare
    restricted_function regprocedure;
    is_used boolean;
    other_database name;
begin
    -- All logins of a server share its locks: 25,000 locks of one login would fail the writes of all. Nor does a login need large objects or
    -- notifications, messages in the write-ahead log, files of snapshots or transaction IDs. The service needs no large objects either:
    -- lo_import and lo_export read and write files of the server. Counters, sizes and locks show the activity of all tenants; monitoring needs them.
    for restricted_function, is_used in
        select oid::regprocedure, proname !~ '^(lo_|lowrite|loread)' from pg_proc
        where pronamespace = 'pg_catalog'::regnamespace
          and (proname ~ '^pg_(try_)?advisory_(xact_)?lock(_shared)?$' or proname ~ '^(lo_|lowrite|loread)' or proname ~ '^(pg_notify|pg_logical_emit_message|pg_export_snapshot|pg_current_xact_id|txid_current)$'
               or proname ~ '^pg_(stat_get_|lock_status|(safe_snapshot_)?blocking_pids|prepared_xact|get_replication_slots|current_wal|last_committed_xact|notification_queue_usage|control_checkpoint)'
               or proname ~ '^pg_(relation|table|indexes|total_relation|database|tablespace)_size$')
    loop
        execute format('revoke execute on function %s from public, hansei_owner, hansei_app, hansei_worker', restricted_function);
        if is_used then
            execute format('grant execute on function %s to hansei_owner, hansei_app, hansei_worker, pg_monitor', restricted_function);
        end if;
    end loop;
    -- Locks and the disk are those of the server: in these databases, a login would have all that is taken from it here.
    for other_database in select datname from pg_database where datname in ('postgres', 'template1') and datname <> current_database() loop
        execute format('revoke connect, temporary on database %I from public', other_database);
    end loop;
    -- The owner sets these for each login, which cannot change them.
    if current_setting('server_version_num')::int >= 150000 then
        execute 'grant set on parameter temp_file_limit, log_min_messages to hansei_owner';
    end if;
end $$;
-- Views of the extensions show how large the tables are.
revoke select on all tables in schema public from public;
-- Without it, a login cannot run a program of statements (`do`).
revoke usage on language plpgsql from public;
grant usage on language plpgsql to hansei_owner;
-- The owner's function analytics.end_login_sessions ends sessions of logins.
grant pg_signal_backend, pg_read_all_stats to hansei_owner with inherit true, set false;
-- CREATE RULE, COMMENT, ALTER … DEPENDS ON EXTENSION and other definitions lock a table before they check the rights of the role. A waiting lock
-- stops all later statements on that table, so a login must not even begin a definition.
create or replace function public.refuse_definitions_of_logins() returns event_trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if exists (
        select from pg_auth_members m
        join pg_roles login on login.oid = m.member
        join pg_roles analyst on analyst.oid = m.roleid
        where analyst.rolname = 'hansei_analyst' and login.rolname in (session_user, current_user) and not m.admin_option
    ) then
        raise insufficient_privilege using message = 'a login for SQL must not define or change anything';
    end if;
end $$;
drop event trigger if exists hansei_logins;
create event trigger hansei_logins on ddl_command_start execute function public.refuse_definitions_of_logins();
