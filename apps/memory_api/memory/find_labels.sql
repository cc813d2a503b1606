-- The numbers of labels that exist; the lists are parallel.
select l.space, l.name, l.id
from unnest(cast(:spaces as text[]), cast(:names as text[])) x(space, name)
join labels l using (space, name)
where l.tenant_id = :tenant
