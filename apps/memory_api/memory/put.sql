-- New memories, one per object of a JSON array: unlike parallel lists it carries rows with any number of tags and terms in one
-- parameter. The RETURNING lets it run where `memories` is distributed.
insert into memories (tenant_id, id, project_id, layer, kind, scope, key, section, title, when_to_use, content, searchable_text,
                      keywords, tags, importance, confidence, helpful, harmful, neutral, usefulness, source, status, pinned,
                      error_category, outcome, session_id, trace_id, source_event_ids, metadata, terms, tokenizer, fingerprint,
                      version, place, change_reason, change_actor, change_run)
select r.tenant_id, r.id, r.project_id, r.layer, r.kind, r.scope, r.key, r.section, r.title, r.when_to_use, r.content,
       r.searchable_text, r.keywords, r.tags, r.importance, r.confidence, coalesce(r.helpful, 0), coalesce(r.harmful, 0),
       coalesce(r.neutral, 0), coalesce(r.usefulness, 0.05), r.source, r.status, coalesce(r.pinned, false), r.error_category,
       r.outcome, r.session_id, r.trace_id, r.source_event_ids, r.metadata, r.terms, r.tokenizer, r.fingerprint, r.version,
       r.place, r.change_reason, r.change_actor, r.change_run
from json_to_recordset(cast(:rows as json)) r(
    tenant_id uuid, id uuid, project_id text, layer text, kind text, scope int, key text, section text, title text,
    when_to_use text, content text, searchable_text text, keywords text[], tags text[], importance float8, confidence float8,
    helpful int, harmful int, neutral int, usefulness float8, source text, status text, pinned boolean, error_category text,
    outcome text, session_id text, trace_id uuid, source_event_ids text[], metadata jsonb, terms int[], tokenizer text,
    fingerprint bytea, version int, place int, change_reason text, change_actor text, change_run uuid)
returning id, n, confidence_score, created_at
