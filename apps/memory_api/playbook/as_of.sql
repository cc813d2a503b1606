-- A playbook's bullets as they were at a version: of each bullet the last revision up to it, one index probe each.
-- Counters are today's: evidence is never undone. The search text is the bullet's own while its words are the same.
select m.key, r.section, r.content, r.keywords, r.when_to_use, r.title, r.tags, r.status, r.pinned, m.metadata as metadata_,
       m.helpful, m.harmful, m.neutral,
       case when (m.content, m.keywords) = (r.content, r.keywords)
             and (m.title, m.when_to_use) is not distinct from (r.title, r.when_to_use)
            then m.searchable_text end searchable_text
from memories m cross join lateral (
    select v.section, v.content, v.keywords, v.when_to_use, v.title, v.tags, v.status, v.pinned
    from memory_revisions v
    where v.tenant_id = :tenant and v.memory_id = m.id and v.version <= cast(:version as int)
    order by v.version desc, v.revision desc
    limit 1
) r
where m.tenant_id = :tenant and m.scope = :scope and m.key is not null
  and (cast(:ids as uuid[]) is null or m.id = any(cast(:ids as uuid[])))
  and r.status <> 'deleted'
order by m.place nulls last, m.n
