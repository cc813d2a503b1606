-- Of these memories, those that still say the same and are still indexed so, with what they are indexed by; the lists are parallel.
select m.n, m.scope, m.terms, m.status
from memories m
join unnest(cast(:ids as uuid[]), cast(:said as text[])) x(id, said) on x.id = m.id
where m.tenant_id = :tenant and m.tokenizer = :tokenizer and md5(m.searchable_text) = x.said
order by m.id
for update of m
