-- The terms of some memories, in one statement; the lists are parallel. Where `postings` is distributed, the tenant must be a
-- column (hence the filled array, made here rather than sent) and there must be a RETURNING.
insert into postings (tenant_id, scope, term, n, weight)
select * from unnest(array_fill(cast(:tenant as uuid), array[cast(:many as int)]), cast(:scopes as int[]),
                     cast(:terms as int[]), cast(:ns as bigint[]), cast(:weights as real[]))
returning 1
