-- A playbook's bullets as they were at a version ($1 tenant, $2 scope, $3 version, $4 ids or null). A bullet that has not changed
-- since is its row; of any other, its last revision up to that version, one index probe each (the inner condition on m.version
-- spares the probe). Counters are today's: evidence is never undone. The search text is the bullet's own while its words are the same.
-- What is empty is null: ten thousand empty lists take long to send and to read.
select m.key,
       case when c.since then m.section else r.section end section,
       case when c.since then m.content else r.content end content,
       nullif(case when c.since then m.keywords else r.keywords end, '{}') keywords,
       case when c.since then m.when_to_use else r.when_to_use end when_to_use,
       case when c.since then m.title else r.title end title,
       nullif(case when c.since then m.tags else r.tags end, '{}') tags,
       case when c.since then m.status else r.status end status,
       case when c.since then m.pinned else r.pinned end pinned,
       case when c.since or (m.content, m.keywords) = (r.content, r.keywords)
             and (m.title, m.when_to_use) is not distinct from (r.title, r.when_to_use)
            then m.searchable_text end searchable_text,
       nullif(m.metadata, '{}') metadata, m.helpful, m.harmful, m.neutral
from memories m
cross join lateral (select m.version <= $3::int since) c
left join lateral (
    select v.section, v.content, v.keywords, v.when_to_use, v.title, v.tags, v.status, v.pinned
    from memory_revisions v
    where v.tenant_id = $1 and v.memory_id = m.id and v.version <= $3
      and m.version > $3
    order by v.version desc
    limit 1
) r on true
where m.tenant_id = $1 and m.scope = $2 and m.key is not null
  and ($4::uuid[] is null or m.id = any($4::uuid[]))
  and case when c.since then m.status else r.status end <> 'deleted'
order by m.place nulls last, m.n
