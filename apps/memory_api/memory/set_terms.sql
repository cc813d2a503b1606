-- What memories are indexed by from now on; the lists are parallel, a row's terms are the text of an int array.
update memories m
set terms = cast(x.terms as int[]), tokenizer = :tokenizer
from unnest(cast(:ns as bigint[]), cast(:terms as text[])) x(n, terms)
where m.tenant_id = :tenant and m.n = x.n
returning 1
