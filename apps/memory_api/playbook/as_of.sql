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
select m.key, s.section, s.content, s.searchable_text, s.keywords, s.when_to_use, s.title, s.tags, nullif(s.status, 'active'),
       nullif(s.pinned, false), m.metadata ->> 'source_trajectory', nullif(m.helpful, 0), nullif(m.harmful, 0),
       nullif(m.neutral, 0), coalesce(m.place::bigint, 2147483648) place, m.n
from (
    select held.*
    from generate_series(0, 30) w(idth)
    cross join lateral (
        select p.bullet_id, p.section, p.content, p.searchable_text, nullif(p.keywords, '{}') keywords, p.when_to_use, p.title,
               nullif(p.tags, '{}') tags, p.status, p.pinned
        from bullet_spans p
        where p.tenant_id = $1 and p.scope = $2 and p.width = w.idth
          and p.until > $3 and p.until < $3 + (2::bigint << w.idth) and p.since <= $3
        offset 0
    ) held
    where $4 is null
    union all
    select held.*
    from unnest($4) b(id)
    cross join lateral (
        select p.bullet_id, p.section, p.content, p.searchable_text, nullif(p.keywords, '{}'), p.when_to_use, p.title,
               nullif(p.tags, '{}'), p.status, p.pinned
        from bullet_spans p
        where p.tenant_id = $1 and p.bullet_id = b.id and p.until > $3 and p.since <= $3
        order by p.until
        limit 1
    ) held
) s
join memories m on m.id = s.bullet_id
where m.tenant_id = $1 and m.scope = $2 and m.key is not null and s.status <> 'deleted'
