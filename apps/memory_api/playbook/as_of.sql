-- A playbook's bullets as they were at a version ($1 tenant, $2 scope, $3 version, $4 ids or null). A bullet that has not changed
-- since is its row; of any other, the span that held then: for a whole playbook a short range of the index for each width (offset 0
-- keeps it so), for a few bullets one probe each. Counters are today's: evidence is never undone. A search text is null where it
-- follows from the others, and what is empty is null: ten thousand empty lists take long to send and to read. Not sorted: the server
-- would hold all texts until the last is read, and the reader sorts in a tenth of the time.
select m.key, s.section, s.content, s.searchable_text, s.keywords, s.when_to_use, s.title, s.tags, s.status, s.pinned,
       m.metadata ->> 'source_trajectory' source_trajectory, m.helpful, m.harmful, m.neutral,
       coalesce(m.place::bigint, 2147483648) place, m.n
from memories m
join (
    select b.id, b.section, b.content,
           case when b.searchable_text <> b.content or b.title <> '' or b.when_to_use <> '' or b.keywords <> '{}'
                then b.searchable_text end searchable_text,
           nullif(b.keywords, '{}') keywords, b.when_to_use, b.title, nullif(b.tags, '{}') tags, b.status, b.pinned
    from memories b
    where b.tenant_id = $1 and b.scope = $2 and b.key is not null and b.version <= $3::int
      and ($4::uuid[] is null or b.id = any($4))
    union all
    select h.*
    from generate_series(0, 30) w(idth)
    cross join lateral (
        select p.bullet_id, p.section, p.content, p.searchable_text, nullif(p.keywords, '{}'), p.when_to_use, p.title,
               nullif(p.tags, '{}'), p.status, p.pinned
        from bullet_spans p
        where p.tenant_id = $1 and p.scope = $2 and p.width = w.idth
          and p.until > $3 and p.until < $3 + (2::bigint << w.idth) and p.since <= $3
        offset 0
    ) h
    where $4 is null
    union all
    select h.*
    from unnest($4) b(id)
    cross join lateral (
        select p.bullet_id, p.section, p.content, p.searchable_text, nullif(p.keywords, '{}'), p.when_to_use, p.title,
               nullif(p.tags, '{}'), p.status, p.pinned
        from bullet_spans p
        where p.tenant_id = $1 and p.bullet_id = b.id and p.until > $3 and p.since <= $3
        order by p.until
        limit 1
    ) h
) s on s.id = m.id
where m.tenant_id = $1 and m.scope = $2 and m.key is not null and s.status <> 'deleted'
