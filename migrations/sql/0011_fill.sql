-- The spans of what has changed already: from each revision to the next, or to the version that changed no word of it. A search text
-- of its own was not kept; it is today's, while the words are the same.
insert into bullet_spans (tenant_id, bullet_id, since, until, scope, section, title, when_to_use, content, searchable_text, keywords,
                          tags, status, pinned)
select r.tenant_id, r.memory_id, r.version, coalesce(r.next, m.version), r.scope, r.section, r.title, r.when_to_use, r.content,
       case when (m.content, m.keywords) = (r.content, r.keywords)
             and (m.title, m.when_to_use) is not distinct from (r.title, r.when_to_use)
            then nullif(m.searchable_text, concat_ws(E'\n', nullif(r.when_to_use, ''), nullif(r.title, ''), nullif(r.content, ''),
                                                     nullif(array_to_string(r.keywords, ' '), ''))) end,
       r.keywords, r.tags, r.status, r.pinned
from (
    select v.*, lead(v.version) over (partition by v.memory_id order by v.revision) next
    from memory_revisions v
    where v.tenant_id = nullif(current_setting('hansei.tenant_id', true), '')::uuid and v.version is not null
) r
join memories m on m.tenant_id = r.tenant_id and m.id = r.memory_id
where m.tenant_id = nullif(current_setting('hansei.tenant_id', true), '')::uuid and coalesce(r.next, m.version) > r.version
order by coalesce(r.next, m.version)
