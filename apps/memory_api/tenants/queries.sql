-- name: list_projects
-- The projects that have traces or memories. Reads one trace of each project.
with recursive projects (project_id) as (
    (select t.project_id from traces t where t.tenant_id = :tenant order by t.project_id limit 1)
    union all
    select next.project_id
    from projects p
    cross join lateral (
        select t.project_id from traces t where t.tenant_id = :tenant and t.project_id > p.project_id order by t.project_id limit 1
    ) next
)
select p.project_id from projects p
union
select s.project_id from scopes s where s.tenant_id = :tenant
