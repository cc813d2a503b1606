-- The terms of some memories, in one statement. The RETURNING lets it run where `postings` is distributed.
insert into postings (tenant_id, scope, term, n, weight)
select * from unnest(cast(:tenants as uuid[]), cast(:scopes as int[]), cast(:terms as int[]),
                     cast(:ns as bigint[]), cast(:weights as real[]))
returning 1
