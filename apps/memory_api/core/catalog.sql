-- name: tenant_tables
-- The tables with rows of tenants, without their partitions. A table comes before those that its rows refer to.
with recursive tables as (
    select c.oid, c.relname from pg_class c
    join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped
    where c.relkind in ('r', 'p') and not c.relispartition and c.relnamespace = 'public'::regnamespace
), depths as (
    select oid, relname, 0 depth from tables
    union
    select t.oid, t.relname, d.depth + 1
    from depths d
    join pg_constraint f on f.conrelid = d.oid and f.contype = 'f' and f.confrelid <> d.oid
    join tables t on t.oid = f.confrelid
    where d.depth < 20
)
select relname::text from depths group by relname order by max(depth), relname

-- name: schema_version
-- The revision, and the `schema_digest` of the code that migrated the database.
select version_num, obj_description('alembic_version'::regclass, 'pg_class') from alembic_version
