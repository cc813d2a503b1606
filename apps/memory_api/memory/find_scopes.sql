-- The numbers of scopes that exist; the lists are parallel.
select s.project_id, s.area, s.name, s.scope
from unnest(cast(:projects as text[]), cast(:areas as text[]), cast(:names as text[])) x(project_id, area, name)
join scopes s using (project_id, area, name)
where s.tenant_id = :tenant
