-- name: add_links
-- Adds links; existing ones are ignored. The lists are parallel.
insert into memory_links (tenant_id, source_id, relation, target_kind, target_id)
select g.tenant_id, g.source_id, g.relation, g.target_kind, g.target_id
from unnest(cast(:tenants as uuid[]), cast(:sources as uuid[]), cast(:relations as text[]), cast(:kinds as text[]),
            cast(:targets as uuid[])) g(tenant_id, source_id, relation, target_kind, target_id)
on conflict do nothing
returning 1

-- name: lock_memories
select m.id from memories m where m.tenant_id = :tenant and m.id = any(cast(:ids as uuid[])) order by m.id for no key update

-- name: add_observation
-- One more trace taught the lesson of these memories.
update memories set observation_count = observation_count + 1 where tenant_id = :tenant and id = any(cast(:ids as uuid[]))

-- name: find_same_text
-- The oldest memory of a scope with the same fingerprint, for those texts that have one. The lists are parallel.
select distinct on (m.scope_id, m.fingerprint) m.scope_id, m.fingerprint, m.id
from unnest(cast(:scopes as int[]), cast(:fingerprints as bytea[])) g(scope_id, fingerprint)
join memories m using (scope_id, fingerprint)
where m.tenant_id = :tenant and m.status <> 'deleted'
order by m.scope_id, m.fingerprint, m.seq

-- name: erase_memories
-- Removes the content of memories. A bullet leaves its playbook's versions: without a version it is a row like any other.
update memories
set content = '', searchable_text = '', title = null, when_to_use = null, section = null, keywords = '{}', tags = '{}', metadata = '{}',
    terms = '{}', fingerprint = decode(md5(id::text), 'hex'), source_event_ids = '{}', session_id = null, status = 'deleted',
    playbook_version = null, change_reason = null
where tenant_id = :tenant and id = any(cast(:ids as uuid[]))

-- name: erase_history
select hansei_erase_history(:tenant, cast(:ids as uuid[]))

-- name: related_memories
-- Active memories of the same project that are in a cluster with one of these memories or mention the same things, best first. An entity that
-- many memories mention counts less: 1 / (1 + ln of their number). A common cluster counts 1.
with reasons as (
    select o.memory_id, h.memory_id of_id, e.type || ':' || e.name via, 1 / (1 + ln(f.count)) weight
    from memory_entities h
    join entities e on e.tenant_id = :tenant and e.id = h.entity_id
    cross join lateral (
        select count(*)::float8 count from (
            select from memory_entities d where d.tenant_id = :tenant and d.entity_id = h.entity_id limit 1000) counted
    ) f
    cross join lateral (
        select d.memory_id from memory_entities d where d.tenant_id = :tenant and d.entity_id = h.entity_id
        order by d.memory_id desc limit 50
    ) o
    where h.tenant_id = :tenant and h.memory_id = any(cast(:ids as uuid[]))
    union all
    select o.memory_id, h.memory_id, 'cluster', 1
    from memory_clusters h
    join memory_clusters o on o.tenant_id = :tenant and o.cluster_id = h.cluster_id
    where h.tenant_id = :tenant and h.memory_id = any(cast(:ids as uuid[]))
)
select r.memory_id, sum(r.weight) weight, array_agg(distinct r.of_id) of_ids, array_agg(distinct r.via) via
from reasons r
join memories m on m.tenant_id = :tenant and m.id = r.memory_id
where r.memory_id <> all(cast(:ids as uuid[])) and m.status = 'active' and m.project_id = :project
group by r.memory_id
order by weight desc, r.memory_id desc
limit :limit

-- name: erase_relations
-- Removes what memories mention, entities that nothing else mentions, and their clusters.
with mentions as (
    delete from memory_entities e where e.tenant_id = :tenant and e.memory_id = any(cast(:ids as uuid[])) returning e.entity_id
),
clusters as (
    delete from memory_clusters c where c.tenant_id = :tenant and c.memory_id = any(cast(:ids as uuid[]))
)
delete from entities e
where e.tenant_id = :tenant and e.id in (select entity_id from mentions)
  and not exists (
      select from memory_entities o
      where o.tenant_id = :tenant and o.entity_id = e.id and o.memory_id <> all(cast(:ids as uuid[])))
