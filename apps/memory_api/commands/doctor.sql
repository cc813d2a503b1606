-- name: role
select current_user, rolsuper or rolbypassrls,
(select count(*) from pg_class c where c.relowner = r.oid)
from pg_roles r where rolname = current_user

-- name: revision
select version_num from alembic_version

-- name: extension
select extversion from pg_extension where extname = 'vector'

-- name: overdue_tickets
select count(*) from tickets where taken_by is null and due_at < now() - interval '1 minute'

-- name: unprotected_tables
select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid
where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
and not c.relispartition and a.attname = 'tenant_id' and not a.attisdropped
and not (c.relrowsecurity and c.relforcerowsecurity
and exists (select from pg_policy p where p.polrelid = c.oid))
order by 1

-- name: tenant_table_count
select count(*) from pg_class c join pg_attribute a on a.attrelid = c.oid
where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
and not c.relispartition and a.attname = 'tenant_id' and not a.attisdropped

-- name: invalid_indexes
select c.relname from pg_index i join pg_class c on c.oid = i.indexrelid
where c.relnamespace = 'public'::regnamespace and not (i.indisvalid and i.indisready)
and not exists (select from pg_stat_progress_create_index p where p.index_relid = c.oid)
order by 1

-- name: existing_indexes
select c.relname from pg_class c where c.relnamespace = 'public'::regnamespace
and c.relkind in ('i', 'I') and c.relname in :names

-- name: may_create_temporary
select has_database_privilege(current_user, current_database(), 'temporary')

-- name: function_texts
select case when p.pronamespace = pg_my_temp_schema() then 'pg_temp.'
when n.nspname = 'public' then '' else n.nspname || '.' end || p.proname,
p.pronargs, regexp_replace(regexp_replace(pg_get_functiondef(p.oid),
'FUNCTION [a-z0-9_]+[.]', 'FUNCTION '), '\n SET plan_cache_mode TO [^\n]+', '')
from pg_proc p join pg_namespace n on n.oid = p.pronamespace
where (n.nspname in ('public', 'analytics', 'questions') or n.oid = pg_my_temp_schema())
and not exists (select from pg_depend d where d.objid = p.oid and d.deptype = 'e')

-- name: login_rights
select p.proname from pg_proc p
where p.pronamespace = 'pg_catalog'::regnamespace
and p.proname ~ '^(pg_(try_)?advisory_(xact_)?lock|lo_|pg_notify$|pg_logical_emit_message$|pg_stat_get_|pg_lock_status$|pg_relation_size$)'
and has_function_privilege('hansei_analyst', p.oid, 'execute')
union all select lanname from pg_language
where lanname = 'plpgsql' and has_language_privilege('hansei_analyst', oid, 'usage')
union all select 'the database ' || datname from pg_database
where datallowconn and datname <> current_database()
and has_database_privilege('hansei_analyst', oid, 'connect')
union all select 'the table ' || c.relname from pg_class c
where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v')
and has_any_column_privilege('hansei_analyst', c.oid, 'select')
union all select 'definitions, which lock tables'
where not exists (select from pg_event_trigger
where evtname = 'hansei_logins' and evtenabled in ('O', 'A'))
order by 1

-- name: file_rights
select p.proname from pg_proc p where p.proname in ('lo_import', 'lo_export')
and has_function_privilege(p.oid, 'execute') order by p.proname

-- name: owner_rights
select has_parameter_privilege(r.rolname, 'temp_file_limit', 'set')
and has_parameter_privilege(r.rolname, 'log_min_messages', 'set')
and pg_has_role(r.oid, 'pg_signal_backend', 'usage')
from pg_proc p join pg_roles r on r.oid = p.proowner
where p.oid = 'analytics.end_login_sessions'::regproc

-- name: endless_sessions
select role_name || ' (pid ' || pid || ')' from analytics.login_sessions()
where transaction_start < now() - interval '15 minutes' order by pid

-- name: notification_usage
select pg_notification_queue_usage()

-- name: database_size
select pg_database_size(current_database())

-- name: clock
select extract(epoch from clock_timestamp())::float8

-- name: undistributable
with tables as (
    select c.oid, c.relname::text name
    from pg_class c join pg_attribute a on a.attrelid = c.oid
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
    and not c.relispartition and a.attname = 'tenant_id' and not a.attisdropped
)
select t.name || ': the unique index ' || i.indexrelid::regclass || ' has no tenant_id'
from tables t join pg_index i on i.indrelid = t.oid
where i.indisunique and not exists (
    select from pg_attribute a where a.attrelid = t.oid and a.attname = 'tenant_id'
    and a.attnum = any(i.indkey::int2[]))
union all
select t.name || ': no primary key' from tables t
where not exists (select from pg_index i where i.indrelid = t.oid and i.indisprimary)
union all
select t.name || ': the foreign key ' || k.conname || ' does not start with tenant_id'
from tables t join pg_constraint k on k.conrelid = t.oid and k.contype = 'f'
where not exists (
    select from pg_attribute a join pg_attribute b on b.attname = a.attname
    where a.attrelid = k.conrelid and a.attnum = k.conkey[1] and a.attname = 'tenant_id'
    and b.attrelid = k.confrelid and b.attnum = k.confkey[1])
or k.confdeltype in ('n', 'd')
order by 1

-- name: is_citus
select to_regclass('pg_dist_partition') is not null

-- name: is_distributed
select exists (select from pg_dist_partition where partmethod = 'h')

-- name: undistributed
with tables as (
    select c.oid, c.relname::text name
    from pg_class c join pg_attribute a on a.attrelid = c.oid
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
    and not c.relispartition and a.attname = 'tenant_id' and not a.attisdropped
)
select 'the table ' || t.name from tables t
where not exists (
    select from pg_dist_partition d where d.logicalrelid = t.oid and d.partmethod = 'h'
    and d.colocationid = (
        select min(o.colocationid) from pg_dist_partition o where o.partmethod = 'h'))
union all
select 'the table ' || t.name from unnest(cast(:reference as text[])) t(name)
where not exists (select from pg_dist_partition d where d.logicalrelid = to_regclass(t.name))
union all
select 'the function ' || p.proname from pg_proc p
where p.pronamespace = 'public'::regnamespace and p.prosrc like '%set_config%''hansei.%'
and not exists (select from pg_dist_object d
    where d.objid = p.oid and d.distribution_argument_index is not null)
order by 1

-- name: node_tenant
select case when count(*) >= 0 then current_setting('hansei.tenant_id', true) end
from scopes s where s.tenant_id = :tenant

-- name: all_shard_statements
select sum(query_execution_multi_shard) from citus_stat_counters
where name = current_database()
and current_setting('citus.enable_stat_counters', true) = 'on'
