-- name: table_triggers
-- $1 a table.
select t.tgname::text name, pg_get_triggerdef(t.oid) definition
from pg_trigger t where not t.tgisinternal and t.tgrelid = $1::text::regclass
order by t.tgname

-- name: functions
-- The functions that statements, policies and triggers use. `argument` is the tenant of a function whose calls run on the node of its tenant:
-- of those that bind it, and with `is_forced` also inside a transaction, of the one that changes history with the owner's rights, because
-- the owner cannot share the connections of its caller.
with used as (
    select p.oid, p.proargnames[1] argument, p.prosrc like '%set_config%''hansei.%' binds_tenant, p.proname = 'hansei_erase_history' is_forced
    from pg_proc p
    where not exists (select from pg_depend d where d.objid = p.oid and d.deptype = 'e')
      and (p.pronamespace = 'public'::regnamespace and (p.proargnames[1] = 'p_tenant_id' or p.prorettype = 'trigger'::regtype)
           or p.oid in ('wilson'::regproc, 'questions.match_of'::regproc))
)
select u.oid::regprocedure::text signature, case when u.binds_tenant or u.is_forced then u.argument end argument, u.is_forced
from used u
order by 1

-- name: functions_with_generic_plans
select p.oid::regprocedure::text from pg_proc p
where p.pronamespace in ('public'::regnamespace, 'analytics'::regnamespace) and 'plan_cache_mode=force_generic_plan' = any(p.proconfig)
order by 1

-- name: managed_tables
-- The tables that Citus knows, with its number of the servers that hold the rows of a tenant together.
select logicalrelid::text name, partmethod = 'h' is_distributed, colocationid colocation
from pg_dist_partition

-- name: managed_functions
select objid::regprocedure::text signature, distribution_argument_index is not null is_delegated
from pg_dist_object where classid = 'pg_proc'::regclass

-- name: nodes
-- The coordinator has group 0.
select nodename host, nodeport port, groupid = 0 is_coordinator from pg_dist_node where noderole = 'primary'

-- name: server
select current_setting('server_version_num')::int version_number, current_setting('server_version') version,
       (select rolsuper or rolbypassrls from pg_roles where rolname = current_user) may_bypass_rls, current_user::text role,
       to_regclass('pg_dist_partition') is not null is_citus, to_regclass('public.tenants') is not null is_migrated

-- name: wrong_settings
-- A setting of pgvector exists in a new session only if the library is loaded before its first use.
select array_to_json(array_remove(array[
    case when current_setting('wal_level') <> 'logical' then 'wal_level = logical' end,
    case when current_setting('hnsw.ef_search', true) is null then 'session_preload_libraries = vector' end,
    case when current_setting('max_prepared_transactions')::int = 0 then 'max_prepared_transactions = 200' end
], null))
