-- name: insert_memories
-- New memories, one per object of a JSON array. Unlike parallel lists, JSON can hold rows with any number of tags and terms in one
-- parameter. A distributed `memories` needs the RETURNING.
insert into memories (tenant_id, id, project_id, layer, kind, scope_id, key, section, title, when_to_use, content, searchable_text,
                      keywords, tags, importance, confidence, helpful, harmful, neutral, usefulness, source, status, pinned,
                      awaiting_confirmation, error_category, outcome, session_id, trace_id, source_event_ids, metadata, terms, tokenizer, fingerprint,
                      playbook_version, position, change_reason, change_actor, change_run_id)
select r.tenant_id, r.id, r.project_id, r.layer, r.kind, r.scope_id, r.key, r.section, r.title, r.when_to_use, r.content,
       r.searchable_text, r.keywords, r.tags, r.importance, r.confidence, coalesce(r.helpful, 0), coalesce(r.harmful, 0),
       coalesce(r.neutral, 0), coalesce(r.usefulness, 0.05), r.source, r.status, coalesce(r.pinned, false),
       coalesce(r.awaiting_confirmation, false), r.error_category,
       r.outcome, r.session_id, r.trace_id, r.source_event_ids, r.metadata, r.terms, r.tokenizer, r.fingerprint,
       r.playbook_version, r.position, r.change_reason, r.change_actor, r.change_run_id
from json_to_recordset(cast(:rows as json)) r(
    tenant_id uuid, id uuid, project_id text, layer text, kind text, scope_id int, key text, section text, title text,
    when_to_use text, content text, searchable_text text, keywords text[], tags text[], importance float8, confidence float8,
    helpful int, harmful int, neutral int, usefulness float8, source text, status text, pinned boolean,
    awaiting_confirmation boolean, error_category text,
    outcome text, session_id text, trace_id uuid, source_event_ids text[], metadata jsonb, terms int[], tokenizer text,
    fingerprint bytea, playbook_version int, position int, change_reason text, change_actor text, change_run_id uuid)
returning id, seq, confidence_score, created_at

-- name: delete_vectors
-- Deletes a batch of vectors that are no longer searched: of memories that have a vector of the remaining model, and of memories that
-- are not active. A row that another transaction has locked is left for the next batch. MATERIALIZED: as part of the join, the batch
-- would be selected again for every row. OFFSET 0: look-ups by key.
with batch as materialized (
    select v.seq from memory_vectors v
    where v.tenant_id = :tenant and v.scope_id = :scope and v.model_label_id = :model and v.seq > :after
      and (exists (select from memory_vectors k
                   where k.tenant_id = :tenant and k.scope_id = :scope and k.model_label_id = :remaining_model and k.seq = v.seq offset 0)
           or not exists (select from memories m
                          where m.tenant_id = :tenant and m.seq = v.seq and m.status = 'active' offset 0))
    order by v.seq
    limit :limit
    for update of v skip locked
)
delete from memory_vectors v
where v.tenant_id = :tenant and v.scope_id = :scope and v.model_label_id = :model and v.seq = any(array(select seq from batch))
returning v.seq

-- name: store_vectors
-- Adds vectors of another model. The lists are parallel. All other columns are copied from the existing vectors. A memory whose text
-- has changed is skipped: `text_hash` is the MD5 of the embedded text.
insert into memory_vectors (tenant_id, scope_id, model_label_id, seq, kind_id, section_label_id, error_label_id, confidence,
                            importance, created_at, tag_label_ids, embedding)
select v.tenant_id, v.scope_id, cast(:target as int), v.seq, v.kind_id, v.section_label_id, v.error_label_id, v.confidence,
       v.importance, v.created_at, v.tag_label_ids, g.embedding
from unnest(cast(:seqs as bigint[]), cast(:text_hashes as text[]), cast(:embeddings as halfvec[])) g(seq, text_hash, embedding)
join memories m on m.tenant_id = :tenant and m.seq = g.seq and m.status = 'active' and md5(m.searchable_text) = g.text_hash
join memory_vectors v on v.tenant_id = :tenant and v.scope_id = :scope and v.model_label_id = :source and v.seq = g.seq
on conflict do nothing
returning seq

-- name: find_indexed
-- Any memories with the terms of one tokenizer.
select m.id, m.seq, m.searchable_text, md5(m.searchable_text) text_hash
from memories m
where m.tenant_id = :tenant and m.tokenizer = :tokenizer
limit :limit

-- name: lock_indexed
-- Locks those of these memories that still have the same text and tokenizer. Returns their terms. The lists are parallel.
select m.seq, m.scope_id, m.terms, m.status
from memories m
join unnest(cast(:ids as uuid[]), cast(:text_hashes as text[])) g(id, text_hash) on g.id = m.id
where m.tenant_id = :tenant and m.tokenizer = :tokenizer and md5(m.searchable_text) = g.text_hash
order by m.id
for update of m

-- name: lock_memories
-- Locks memories against changes of their text until the end of the transaction.
select m.id from memories m where m.tenant_id = :tenant and m.id = any(cast(:ids as uuid[])) order by m.id for share

-- name: find_missing_vectors
-- Active memories of one scope with a vector of one model and none of another, by seq. OFFSET 0 makes the search for the other vector
-- a look-up by key: a join reads the whole scope for each row if the table has no statistics yet.
select v.seq, m.id, m.searchable_text, md5(m.searchable_text) text_hash
from memory_vectors v
cross join lateral (
    select o.id, o.searchable_text from memories o
    where o.tenant_id = :tenant and o.seq = v.seq and o.status = 'active' limit 1
) m
where v.tenant_id = :tenant and v.scope_id = :scope and v.model_label_id = :source and v.seq > :after
  and not exists (select from memory_vectors t
                  where t.tenant_id = :tenant and t.scope_id = :scope and t.model_label_id = :target and t.seq = v.seq offset 0)
order by v.seq
limit :limit

-- name: count_vectors
-- The scopes with vectors of a model, and the number of vectors.
select s.id scope_id, c.vector_count
from scopes s
cross join lateral (select count(*) vector_count from memory_vectors v
                    where v.tenant_id = :tenant and v.scope_id = s.id and v.model_label_id = :model) c
where s.tenant_id = :tenant and c.vector_count > 0
order by s.id

-- name: find_unused_models
-- Models with vectors that no search uses: not active, not being filled, and not active within the grace period.
select l.id, l.name
from labels l
where l.tenant_id = :tenant and l.type = 'model'
  and exists (select from embedding_models a where a.tenant_id = :tenant and a.state = 'active')
  and not exists (select from embedding_models e
                  where e.tenant_id = :tenant and e.label = l.name
                    and (e.state <> 'retiring' or e.state_since > now() - cast(:grace as interval)))
  and exists (select from scopes s
              cross join lateral (select v.seq from memory_vectors v
                                  where v.tenant_id = :tenant and v.scope_id = s.id and v.model_label_id = l.id
                                  order by v.seq limit 1) f
              where s.tenant_id = :tenant)
order by l.id

-- name: insert_postings
-- The terms of some memories. The lists are parallel. A distributed `postings` needs the tenant as a column (hence the filled array)
-- and a RETURNING.
insert into postings (tenant_id, scope_id, term_id, seq, weight)
select * from unnest(array_fill(cast(:tenant as uuid), array[cast(:many as int)]), cast(:scopes as int[]),
                     cast(:terms as int[]), cast(:seqs as bigint[]), cast(:weights as real[]))
returning 1

-- name: insert_scope_stats
-- Changes of the numbers of memories of some scopes. The lists are parallel.
insert into scope_stats (tenant_id, scope_id, id, delta)
select * from unnest(array_fill(cast(:tenant as uuid), array[cast(:many as int)]), cast(:scopes as int[]), cast(:ids as uuid[]),
                     cast(:deltas as int[]))
returning 1

-- name: set_terms
-- Replaces the terms and the tokenizer of memories. The lists are parallel. The terms of a row are
-- joined by commas.
update memories m
set terms = cast(string_to_array(g.terms, ',') as int[]), tokenizer = :tokenizer
from unnest(cast(:seqs as bigint[]), cast(:terms as text[])) g(seq, terms)
where m.tenant_id = :tenant and m.seq = g.seq
returning 1

-- name: list_tokenizers
-- The tokenizers of a tenant's memories, with one index look-up for each.
with recursive found as (
    (select m.tokenizer from memories m where m.tenant_id = :tenant order by m.tokenizer limit 1)
    union all
    select (select m.tokenizer from memories m
            where m.tenant_id = :tenant and m.tokenizer > f.tokenizer order by m.tokenizer limit 1)
    from found f where f.tokenizer is not null
)
select f.tokenizer from found f where f.tokenizer is not null

-- name: insert_vectors
-- Vectors of some memories. The lists are parallel. The tags of a row are the text of an int array.
insert into memory_vectors (tenant_id, scope_id, model_label_id, seq, kind_id, section_label_id, error_label_id, confidence,
                            importance, created_at, tag_label_ids, embedding)
select g.tenant_id, g.scope_id, g.model_label_id, g.seq, g.kind_id, g.section_label_id, g.error_label_id, g.confidence,
       g.importance, g.created_at, cast(g.tag_label_ids as int[]), g.embedding
from unnest(array_fill(cast(:tenant as uuid), array[cast(:many as int)]), cast(:scopes as int[]), cast(:models as int[]),
            cast(:seqs as bigint[]), cast(:kinds as smallint[]), cast(:sections as int[]), cast(:errors as int[]),
            cast(:confidences as real[]), cast(:importances as real[]), cast(:times as timestamptz[]),
            cast(:tags as text[]), cast(:embeddings as halfvec[]))
    g(tenant_id, scope_id, model_label_id, seq, kind_id, section_label_id, error_label_id, confidence, importance, created_at,
      tag_label_ids, embedding)
returning 1

-- name: delete_postings
-- Deletes postings. The lists are parallel.
delete from postings p
using unnest(cast(:scopes as int[]), cast(:terms as int[]), cast(:seqs as bigint[])) g(scope_id, term_id, seq)
where p.tenant_id = :tenant and p.scope_id = g.scope_id and p.term_id = g.term_id and p.seq = g.seq

-- name: delete_scope_vectors
-- Deletes all vectors of a scope. Returns the number of memories that had one.
with deleted as (
    delete from memory_vectors v where v.tenant_id = :tenant and v.scope_id = :scope returning v.seq
)
select count(distinct seq) from deleted

-- name: delete_scope_postings
delete from postings p where p.tenant_id = :tenant and p.scope_id = :scope

-- name: find_labels
-- The IDs of the labels that exist. The lists are parallel.
select l.type, l.name, l.id
from unnest(cast(:types as text[]), cast(:names as text[])) g(type, name)
join labels l using (type, name)
where l.tenant_id = :tenant

-- name: find_scopes
-- The IDs of the scopes that exist. The lists are parallel.
select s.project_id, s.type, s.name, s.id
from unnest(cast(:projects as text[]), cast(:types as text[]), cast(:names as text[])) g(project_id, type, name)
join scopes s using (project_id, type, name)
where s.tenant_id = :tenant
