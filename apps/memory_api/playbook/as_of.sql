-- A playbook's bullets as they were at a version ($1 tenant, $2 scope, $3 version, $4 ids or null). A bullet that has not changed
-- since is its row; of any other, the span that held then: for a whole playbook a short range of the index for each width (offset 0
-- keeps it so), for a few bullets one probe each. Counters are today's: evidence is never undone.
-- A search text is null where it follows from the others, and what is empty, zero or usual is null: it takes long to send and to read
-- ten thousand times. Not sorted: the server would hold all texts until the last is read; the reader sorts in a tenth of that time.
select m.key, m.section, m.content,
       case when m.searchable_text <> m.content or m.title <> '' or m.when_to_use <> '' or m.keywords <> '{}'
            then m.searchable_text end searchable_text,
       nullif(m.keywords, '{}') keywords, m.when_to_use, m.title, nullif(m.tags, '{}') tags, nullif(m.status, 'active') status,
       nullif(m.pinned, false) pinned, m.metadata ->> 'source_trajectory' source_trajectory, nullif(m.helpful, 0) helpful,
       nullif(m.harmful, 0) harmful, nullif(m.neutral, 0) neutral, coalesce(m.place::bigint, 2147483648) place, m.n
from memories m
where m.tenant_id = $1 and m.scope = $2 and m.key is not null and m.version <= $3::int and m.status <> 'deleted'
  and ($4::uuid[] is null or m.id = any($4))
union all
select m.key, p.section, p.content, p.searchable_text, nullif(p.keywords, '{}'), p.when_to_use, p.title, nullif(p.tags, '{}'),
       nullif(p.status, 'active'), nullif(p.pinned, false), m.metadata ->> 'source_trajectory', nullif(m.helpful, 0),
       nullif(m.harmful, 0), nullif(m.neutral, 0), coalesce(m.place::bigint, 2147483648), m.n
from generate_series(0, 30) w(idth)
cross join lateral (
    select p.*
    from bullet_spans p
    where p.tenant_id = $1 and p.scope = $2 and p.width = w.idth
      and p.until > $3 and p.until < $3 + (2::bigint << w.idth) and p.since <= $3
    offset 0
) p
join memories m on m.id = p.bullet_id
where $4 is null and m.tenant_id = $1 and m.scope = $2 and m.key is not null and p.status <> 'deleted'
union all
select m.key, p.section, p.content, p.searchable_text, nullif(p.keywords, '{}'), p.when_to_use, p.title, nullif(p.tags, '{}'),
       nullif(p.status, 'active'), nullif(p.pinned, false), m.metadata ->> 'source_trajectory', nullif(m.helpful, 0),
       nullif(m.harmful, 0), nullif(m.neutral, 0), coalesce(m.place::bigint, 2147483648), m.n
from unnest($4) b(id)
cross join lateral (
    select p.*
    from bullet_spans p
    where p.tenant_id = $1 and p.bullet_id = b.id and p.until > $3 and p.since <= $3
    order by p.until
    limit 1
) p
join memories m on m.id = b.id
where m.tenant_id = $1 and m.scope = $2 and m.key is not null and p.status <> 'deleted'
