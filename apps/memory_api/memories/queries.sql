-- name: add_links
-- Adds links; existing ones are ignored. The lists are parallel.
insert into memory_links (tenant_id, source_id, relation, target_kind, target_id)
select g.tenant_id, g.source_id, g.relation, g.target_kind, g.target_id
from unnest(cast(:tenants as uuid[]), cast(:sources as uuid[]), cast(:relations as text[]), cast(:kinds as text[]),
            cast(:targets as uuid[])) g(tenant_id, source_id, relation, target_kind, target_id)
on conflict do nothing
returning 1

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
