-- New links; those that exist stay. The lists are parallel.
insert into memory_links (tenant_id, source_id, relation, target_kind, target_id)
select x.tenant_id, x.source_id, x.relation, x.target_kind, x.target_id
from unnest(cast(:tenants as uuid[]), cast(:sources as uuid[]), cast(:relations as text[]), cast(:kinds as text[]),
            cast(:targets as uuid[])) x(tenant_id, source_id, relation, target_kind, target_id)
on conflict do nothing
returning 1
