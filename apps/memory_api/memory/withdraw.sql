-- Postings of memories that are served no more; the three lists are parallel.
delete from postings p
using unnest(cast(:scopes as int[]), cast(:terms as int[]), cast(:ns as bigint[])) x(scope, term, n)
where p.tenant_id = :tenant and p.scope = x.scope and p.term = x.term and p.n = x.n
