-- What is served of some memories, in one statement; the lists are parallel, a row's tags are the text of an int array.
insert into memory_vectors (tenant_id, scope, model, n, kind, section, error_category, confidence, importance, created_at,
                            tag_ids, emb)
select x.tenant_id, x.scope, x.model, x.n, x.kind, x.section, x.error_category, x.confidence, x.importance, x.created_at,
       cast(x.tag_ids as int[]), x.emb
from unnest(array_fill(cast(:tenant as uuid), array[cast(:many as int)]), cast(:scopes as int[]), cast(:models as int[]),
            cast(:ns as bigint[]), cast(:kinds as smallint[]), cast(:sections as int[]), cast(:errors as int[]),
            cast(:confidences as real[]), cast(:importances as real[]), cast(:times as timestamptz[]),
            cast(:tags as text[]), cast(:embs as halfvec[]))
    x(tenant_id, scope, model, n, kind, section, error_category, confidence, importance, created_at, tag_ids, emb)
returning 1
