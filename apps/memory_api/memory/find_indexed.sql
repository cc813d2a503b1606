-- Some memories that one tokeniser indexed.
select m.id, m.n, m.searchable_text, md5(m.searchable_text) said
from memories m
where m.tenant_id = :tenant and m.tokenizer = :tokenizer
limit :many
