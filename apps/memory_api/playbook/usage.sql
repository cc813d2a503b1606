-- Counts of use, added up beside the memories: a read never rewrites one.
insert into memory_usage as u (tenant_id, memory_id, uses, last_used_at)
select x.tenant_id, x.memory_id, x.uses, now()
from unnest(cast(:tenants as uuid[]), cast(:memories as uuid[]), cast(:uses as bigint[])) x(tenant_id, memory_id, uses)
order by x.memory_id
on conflict (tenant_id, memory_id) do update set uses = u.uses + excluded.uses, last_used_at = excluded.last_used_at
returning 1
