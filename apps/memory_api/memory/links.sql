-- New links of one memory; those that exist stay.
insert into memory_links (tenant_id, source_id, relation, target_kind, target_id)
select x.tenant_id, :source_id, :relation, :target_kind, x.target_id
from unnest(cast(:tenants as uuid[]), cast(:targets as uuid[])) x(tenant_id, target_id)
on conflict do nothing
returning 1
