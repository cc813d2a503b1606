-- Vectors of another model beside those that are there; the lists are parallel. All else of a row is taken over. A memory that
-- says something else by now is left out: `said` is the MD5 of what was embedded.
insert into memory_vectors (tenant_id, scope, model, n, kind, section, error_category, confidence, importance, created_at,
                            tag_ids, emb)
select v.tenant_id, v.scope, cast(:target as int), v.n, v.kind, v.section, v.error_category, v.confidence, v.importance,
       v.created_at, v.tag_ids, x.emb
from unnest(cast(:ns as bigint[]), cast(:said as text[]), cast(:embs as halfvec[])) x(n, said, emb)
join memories m on m.tenant_id = :tenant and m.n = x.n and m.status = 'active' and md5(m.searchable_text) = x.said
join memory_vectors v on v.tenant_id = :tenant and v.scope = :scope and v.model = :source and v.n = x.n
on conflict do nothing
returning n
