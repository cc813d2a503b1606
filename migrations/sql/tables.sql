-- Tables, their indexes, and the view of bullet effects. Every table except `tenants` is keyed by tenant_id first, so that all of
-- them can be distributed by tenant. Foreign keys stay within one tenant. The name of an index leaves out tenant_id.

-- A tenant is its own key: the only table without tenant_id.
create table tenants (
    id uuid not null,
    slug text not null,
    status text default 'active' not null,
    created_at timestamptz default now() not null,
    constraint tenants_pkey primary key (id),
    constraint tenants_slug_key unique (slug)
);

-- A key is stored as the SHA-256 of its secret half.
create table api_keys (
    tenant_id uuid not null,
    id uuid not null,
    name text default '' not null,
    secret_hash bytea not null,
    scopes text[] default '{}' not null,
    project_id text,
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz,
    created_at timestamptz default now() not null,
    constraint api_keys_pkey primary key (tenant_id, id),
    constraint api_keys_tenant_id_secret_hash_key unique (tenant_id, secret_hash)
);

-- One execution of work. The queue carries only its ID; this row is the truth.
create table runs (
    tenant_id uuid not null,
    id uuid not null,
    project_id text default 'default' not null,
    kind text not null,
    state text default 'queued' not null,
    parent_id uuid,
    trace_id uuid,
    input jsonb default '{}' not null,
    playbook text generated always as (input ->> 'playbook') stored,
    attempts integer default '0' not null,
    max_attempts integer default '5' not null,
    lease_until timestamptz,
    lease_owner text,
    error jsonb,
    result jsonb,
    engine text,
    degraded boolean default 'false' not null,
    prompt_hash text,
    usage jsonb,
    created_at timestamptz default now() not null,
    started_at timestamptz,
    finished_at timestamptz,
    updated_at timestamptz default now() not null,
    constraint runs_pkey primary key (tenant_id, id)
);

create index runs_created_at_idx on runs (tenant_id, created_at desc, id desc);
create index runs_state_created_at_idx on runs (tenant_id, state, created_at desc, id desc);
create index runs_trace_id_idx on runs (tenant_id, trace_id) where trace_id is not null;
-- The runs that upkeep compares with the queue, and those that it deletes a day after their end.
create index runs_unfinished_idx on runs (tenant_id, updated_at) where state in ('queued', 'running');
-- The short runs of a playbook that wait for a reflection they may share.
create index runs_waiting_reflections_idx on runs (tenant_id, playbook) where state = 'queued' and kind = 'reflect' and playbook is not null;
create index runs_kind_finished_at_idx on runs (tenant_id, kind, finished_at desc) where kind in ('upkeep', 'cleanup', 'maintenance', 'webhook', 'budget_alert', 'erasure');

-- The response stored for an Idempotency-Key, or a lease while the first request is being handled.
create table idempotency_keys (
    tenant_id uuid not null,
    route text not null,
    key text not null,
    body_hash bytea not null,
    response_status integer,
    response_body jsonb,
    response_headers jsonb,
    lease_until timestamptz,
    created_at timestamptz default now() not null,
    constraint idempotency_keys_pkey primary key (tenant_id, route, key)
);

create index idempotency_keys_created_at_idx on idempotency_keys (tenant_id, created_at);

-- The IDs that a stored response names, so that erasing a trace or a memory reads only the responses that name it.
create table response_mentions (
    tenant_id uuid not null,
    route text not null,
    key text not null,
    mentioned_id uuid not null,
    constraint response_mentions_pkey primary key (tenant_id, route, key, mentioned_id),
    constraint response_mentions_tenant_id_route_key_fkey foreign key (tenant_id, route, key)
        references idempotency_keys (tenant_id, route, key) on delete cascade
);

create index response_mentions_mentioned_id_idx on response_mentions (tenant_id, mentioned_id);

-- One run of an agent: an attempt at `task_key` if it has one.
create table traces (
    tenant_id uuid not null,
    id uuid not null,
    project_id text not null,
    external_id text,
    task_key text,
    parent_id uuid,
    session_id text,
    playbook text,
    task_description text,
    task_goal text,
    outcome text,
    conflict jsonb,
    check_outcome text,
    effective_outcome text generated always as (coalesce(conflict ->> 'check', outcome, check_outcome)) stored,
    state text default 'closed' not null,
    error jsonb,
    query text,
    generated_answer text,
    reasoning_steps jsonb,
    tools jsonb,
    ground_truth jsonb,
    test_report text,
    used_bullet_keys text[] default '{}' not null,
    retrieval_id uuid,
    related_memory_ids text[] default '{}' not null,
    language text,
    metadata jsonb default '{}' not null,
    event_count integer default '0' not null,
    content_hash bytea not null,
    call_sequence bytea,
    duplicate_of uuid,
    created_at timestamptz default now() not null,
    updated_at timestamptz default now() not null,
    closed_at timestamptz,
    events_deleted_at timestamptz,
    constraint traces_pkey primary key (tenant_id, id),
    constraint traces_tenant_id_project_id_external_id_key unique (tenant_id, project_id, external_id)
);

create index traces_updated_at_idx on traces (tenant_id, updated_at) where state = 'open';
create index traces_project_id_task_key_created_at_idx on traces (tenant_id, project_id, task_key, created_at) where task_key is not null;
create index traces_project_id_created_at_idx on traces (tenant_id, project_id, created_at desc, id desc);
create index traces_session_id_idx on traces (tenant_id, session_id) where session_id is not null;
create index traces_retrieval_id_idx on traces (tenant_id, retrieval_id) where retrieval_id is not null;
-- The successes of a playbook that called the same tools.
create index traces_call_sequence_idx on traces (tenant_id, project_id, call_sequence) where call_sequence is not null;
-- The traces whose events a retention period still has to delete, and those of a person.
create index traces_events_created_at_idx on traces (tenant_id, project_id, created_at) where events_deleted_at is null and state = 'closed';
create index traces_subject_idx on traces (tenant_id, (metadata ->> 'subject')) where (metadata ->> 'subject') is not null;

create table trace_events (
    tenant_id uuid not null,
    trace_id uuid not null,
    seq integer not null,
    event_id text not null,
    event_type text not null,
    content text not null,
    timestamp timestamptz,
    metadata jsonb default '{}' not null,
    tool_name text,
    error jsonb,
    agent text,
    constraint trace_events_pkey primary key (tenant_id, trace_id, seq),
    constraint trace_events_tenant_id_trace_id_fkey foreign key(tenant_id, trace_id) references traces (tenant_id, id) on delete cascade
);

-- No foreign key to runs: an evaluation outlives the run that made it.
create table trace_evaluations (
    tenant_id uuid not null,
    trace_id uuid not null,
    evaluator text not null,
    criterion text not null,
    score double precision not null,
    reasons text[] default '{}' not null,
    is_declared boolean default false not null,
    run_id uuid,
    created_at timestamptz default now() not null,
    constraint trace_evaluations_pkey primary key (tenant_id, trace_id, evaluator, criterion),
    constraint trace_evaluations_score_check check (score between 0 and 1),
    constraint trace_evaluations_tenant_id_trace_id_fkey foreign key (tenant_id, trace_id)
        references traces (tenant_id, id) on delete cascade
);

-- The unit of search statistics: a playbook, a collection, or one kind of memory in a project.
create table scopes (
    tenant_id uuid not null,
    id integer not null,
    project_id text not null,
    type text not null,
    name text not null,
    created_at timestamptz default now() not null,
    constraint scopes_pkey primary key (tenant_id, id),
    constraint scopes_tenant_id_project_id_type_name_key unique (tenant_id, project_id, type, name)
);

-- Small integers for the names that search filters on. They keep the covering index of memory_vectors narrow.
create table labels (
    tenant_id uuid not null,
    id integer not null,
    type text not null,
    name text not null,
    constraint labels_pkey primary key (tenant_id, id),
    constraint labels_tenant_id_type_name_key unique (tenant_id, type, name)
);

-- Any stored item. Wide, and never indexed by vector.
create table memories (
    tenant_id uuid not null,
    id uuid not null,
    seq bigint generated always as identity,
    project_id text not null,
    layer text not null,
    kind text not null,
    scope_id integer not null,
    key text,
    section text,
    title text,
    when_to_use text,
    content text not null,
    searchable_text text not null,
    keywords text[] default '{}' not null,
    tags text[] default '{}' not null,
    importance double precision default '0.5' not null,
    confidence double precision,
    helpful integer default '0' not null,
    harmful integer default '0' not null,
    neutral integer default '0' not null,
    harmful_at_release integer default '0' not null,
    observation_count integer default '1' not null,
    confidence_score double precision generated always as (case when helpful + harmful = 0 then 0.5 else helpful::float8 / (helpful + harmful) end) stored not null,
    usefulness double precision default '0.05' not null,
    status text default 'active' not null,
    pinned boolean default 'false' not null,
    source text not null,
    error_category text,
    outcome text,
    session_id text,
    trace_id uuid,
    source_event_ids text[] default '{}' not null,
    metadata jsonb default '{}' not null,
    terms integer[] default '{}' not null,
    tokenizer text not null,
    fingerprint bytea not null,
    revision integer default '1' not null,
    playbook_version integer,
    position integer,
    awaiting_confirmation boolean default false not null,
    change_reason text,
    change_actor text,
    change_run_id uuid,
    created_at timestamptz default now() not null,
    updated_at timestamptz default now() not null,
    constraint memories_pkey primary key (tenant_id, id),
    constraint memories_tenant_id_seq_key unique (tenant_id, seq),
    constraint memories_tenant_id_scope_id_fkey foreign key(tenant_id, scope_id) references scopes (tenant_id, id),
    constraint memories_importance_check check (importance between 0 and 1),
    constraint memories_status_check check (status in ('active', 'quarantined', 'archived', 'deleted'))
);

create unique index memories_scope_id_key_idx on memories (tenant_id, scope_id, key) where key is not null;
create index memories_project_id_kind_created_at_idx on memories (tenant_id, project_id, kind, created_at desc, id desc);
create index memories_trace_id_idx on memories (tenant_id, trace_id) where trace_id is not null;
create index memories_scope_id_fingerprint_idx on memories (tenant_id, scope_id, fingerprint);
create index memories_scope_id_seq_idx on memories (tenant_id, scope_id, seq) where status = 'quarantined';
create index memories_tokenizer_idx on memories (tenant_id, tokenizer);
create index memories_subject_idx on memories (tenant_id, (metadata ->> 'subject')) where (metadata ->> 'subject') is not null;
-- The episodes of a session, which a session summary reads.
create index memories_session_id_idx on memories (tenant_id, project_id, session_id, created_at)
    where session_id is not null and kind = 'episode';
create index memories_session_summaries_idx on memories (tenant_id, project_id, session_id)
    where source = 'session_summary' and kind = 'episode';

-- One row per active memory and embedding model. The covering key answers an exact search without reading the table.
create table memory_vectors (
    tenant_id uuid not null,
    scope_id integer not null,
    model_label_id integer not null,
    seq bigint not null,
    kind_id smallint not null,
    section_label_id integer,
    error_label_id integer,
    confidence real not null,
    importance real not null,
    created_at timestamptz not null,
    tag_label_ids integer[] not null,
    embedding halfvec storage plain not null,
    constraint memory_vectors_pkey primary key (tenant_id, scope_id, model_label_id, seq)
        include (kind_id, section_label_id, error_label_id, confidence, importance, created_at, tag_label_ids, embedding)
) with (autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.02);

-- One row per term of an active memory. `weight` is the document side of BM25, computed when the row is written.
create table postings (
    tenant_id uuid not null,
    scope_id integer not null,
    term_id integer not null,
    seq bigint not null,
    weight real not null,
    constraint postings_pkey primary key (tenant_id, scope_id, term_id, seq) include (weight)
) with (autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.02);

-- The number of indexed memories of a scope, as a sum of appended deltas, so that inserts do not wait for each other.
create table scope_stats (
    tenant_id uuid not null,
    scope_id integer not null,
    id uuid not null,
    delta integer not null,
    constraint scope_stats_pkey primary key (tenant_id, scope_id, id) include (delta)
);

create table memory_links (
    tenant_id uuid not null,
    source_id uuid not null,
    relation text not null,
    target_kind text not null,
    target_id uuid not null,
    created_at timestamptz default now() not null,
    constraint memory_links_pkey primary key (tenant_id, source_id, relation, target_kind, target_id),
    constraint memory_links_tenant_id_source_id_fkey foreign key(tenant_id, source_id) references memories (tenant_id, id) on delete cascade
);

create index memory_links_target_id_idx on memory_links (tenant_id, target_id);

-- A memory after one change. Only the history triggers write here; `change_type` says what differs from the revision before it.
create table memory_revisions (
    tenant_id uuid not null,
    memory_id uuid not null,
    revision integer not null,
    playbook_version integer,
    scope_id integer not null,
    key text,
    section text,
    title text,
    when_to_use text,
    content text not null,
    keywords text[] default '{}' not null,
    tags text[] default '{}' not null,
    importance double precision not null,
    status text not null,
    pinned boolean not null,
    change_reason text,
    change_actor text,
    change_run_id uuid,
    change_type text default 'created' not null,
    created_at timestamptz default now() not null,
    constraint memory_revisions_pkey primary key (tenant_id, memory_id, revision)
);

create index memory_revisions_scope_id_playbook_version_idx on memory_revisions (tenant_id, scope_id, playbook_version, memory_id)
    where playbook_version is not null;

-- How often a memory was returned. A table of its own, so that a read never rewrites a memory.
create table memory_usage (
    tenant_id uuid not null,
    memory_id uuid not null,
    use_count bigint not null,
    last_used_at timestamptz default now() not null,
    constraint memory_usage_pkey primary key (tenant_id, memory_id)
);

-- Bullets are memories of kind `bullet` in the playbook's scope. A change of bullets locks this row.
create table playbooks (
    tenant_id uuid not null,
    scope_id integer not null,
    project_id text not null,
    name text not null,
    version integer default '0' not null,
    active_count integer default '0' not null,
    sections jsonb not null,
    key_counters jsonb default '{}' not null,
    aliases jsonb default '{}' not null,
    token_budget integer,
    max_bullets integer,
    review_mode text default 'off' not null,
    holdout_share double precision default 0 not null,
    focus text,
    cleaned_version integer default '0' not null,
    created_at timestamptz default now() not null,
    updated_at timestamptz default now() not null,
    deleted_at timestamptz,
    constraint playbooks_pkey primary key (tenant_id, scope_id),
    constraint playbooks_tenant_id_project_id_name_key unique (tenant_id, project_id, name),
    constraint playbooks_tenant_id_scope_id_fkey foreign key(tenant_id, scope_id) references scopes (tenant_id, id),
    constraint playbooks_review_mode_check check (review_mode in ('off', 'required')),
    constraint playbooks_holdout_share_check check (holdout_share between 0 and 1),
    constraint playbooks_focus_check check (char_length(focus) <= 300)
);

-- One change of a playbook. `sections` is null if it equals that of the version before.
create table playbook_versions (
    tenant_id uuid not null,
    scope_id integer not null,
    version integer not null,
    change_type text not null,
    added_count integer not null,
    updated_count integer not null,
    removed_count integer not null,
    active_count integer not null,
    sections jsonb,
    reason text,
    actor text,
    run_id uuid,
    created_at timestamptz default now() not null,
    constraint playbook_versions_pkey primary key (tenant_id, scope_id, version),
    constraint playbook_versions_tenant_id_scope_id_fkey foreign key(tenant_id, scope_id) references playbooks (tenant_id, scope_id)
);

create index playbook_versions_scope_id_created_at_idx on playbook_versions (tenant_id, scope_id, created_at);

-- Deltas that wait for a person.
create table playbook_proposals (
    tenant_id uuid not null,
    id uuid not null,
    scope_id integer not null,
    state text default 'waiting' not null,
    deltas jsonb not null,
    sources jsonb default '{}' not null,
    reason text,
    actor text,
    run_id uuid,
    accepted_version integer,
    decided_by text,
    decision_reason text,
    decided_at timestamptz,
    created_at timestamptz default now() not null,
    constraint playbook_proposals_pkey primary key (tenant_id, id),
    constraint playbook_proposals_tenant_id_scope_id_fkey foreign key(tenant_id, scope_id) references playbooks (tenant_id, scope_id),
    constraint playbook_proposals_state_check check (state in ('waiting', 'accepted', 'rejected'))
);

create index playbook_proposals_scope_id_created_at_idx on playbook_proposals (tenant_id, scope_id, created_at desc, id desc);

-- The text of a bullet from `from_version` up to, but not including, `until_version`. The history trigger writes a row when the
-- bullet changes; the current text is in `memories`. A span of length class c is 2^c to 2^(c+1) - 1 versions long, so those of class c
-- that hold at a version end within the next 2^(c+1) versions: a past playbook is one short index range per class.
-- `searchable_text` is null if it follows from the other texts.
create table bullet_spans (
    tenant_id uuid not null,
    bullet_id uuid not null,
    until_version integer not null,
    from_version integer not null,
    length_class smallint generated always as (length(ltrim((until_version - from_version)::bit(32)::text, '0')) - 1) stored not null,
    scope_id integer not null,
    section text,
    title text,
    when_to_use text,
    content text not null,
    searchable_text text,
    keywords text[] default '{}' not null,
    tags text[] default '{}' not null,
    status text not null,
    pinned boolean not null,
    awaiting_confirmation boolean default false not null,
    constraint bullet_spans_pkey primary key (tenant_id, bullet_id, until_version),
    constraint bullet_spans_length_check check (from_version < until_version)
);

create index bullet_spans_scope_id_length_class_until_version_idx on bullet_spans
    (tenant_id, scope_id, length_class, until_version, from_version);

-- What one judge says about one bullet, in one trace if it has one.
create table bullet_verdicts (
    tenant_id uuid not null,
    id uuid not null,
    bullet_id uuid not null,
    trace_id uuid,
    judge text not null,
    tag text not null,
    reason text,
    evidence jsonb default '{}' not null,
    retrieval_id uuid,
    reason_memory_id uuid,
    actor text,
    run_id uuid,
    confirmed boolean default false not null,
    created_at timestamptz default now() not null,
    updated_at timestamptz default now() not null,
    constraint bullet_verdicts_pkey primary key (tenant_id, id),
    constraint bullet_verdicts_tenant_id_trace_id_bullet_id_judge_key unique (tenant_id, trace_id, bullet_id, judge),
    constraint bullet_verdicts_tenant_id_bullet_id_fkey foreign key(tenant_id, bullet_id) references memories (tenant_id, id),
    constraint bullet_verdicts_judge_check check (judge in ('human', 'llm', 'outcome')),
    constraint bullet_verdicts_tag_check check (tag in ('helpful', 'harmful', 'neutral'))
);

create index bullet_verdicts_bullet_id_idx on bullet_verdicts (tenant_id, bullet_id);
create index bullet_verdicts_created_at_idx on bullet_verdicts (tenant_id, created_at);
create index bullet_verdicts_helpful_idx on bullet_verdicts (tenant_id, bullet_id, created_at) where tag = 'helpful';

-- The verdicts that the counters of the bullets include: of each trace, or of each actor without a trace, that of the judge with the
-- highest precedence, and an outcome only if other attempts confirm it. Every count of helpful and harmful verdicts reads this view.
-- A count, not `exists`: the planner would read all verdicts for the few of a period.
create view counted_verdicts with (security_invoker = true) as
select v.tenant_id, v.id, v.bullet_id, v.trace_id, v.judge, v.tag, v.retrieval_id, v.actor, v.run_id, v.created_at
from bullet_verdicts v
where (v.judge <> 'outcome' or v.confirmed)
  and (
      v.trace_id is null
      or (
          select count(*) from bullet_verdicts o
          where o.tenant_id = v.tenant_id and o.bullet_id = v.bullet_id and o.trace_id = v.trace_id
            and (v.judge = 'outcome' and o.judge <> 'outcome' or v.judge = 'llm' and o.judge = 'human')
      ) = 0
  )
  and (
      v.trace_id is not null
      or (
          select count(*) from bullet_verdicts o
          where o.trace_id is null and o.tenant_id = v.tenant_id and o.bullet_id = v.bullet_id and o.actor = v.actor
            and (v.judge = 'outcome' and o.judge <> 'outcome' or v.judge = 'llm' and o.judge = 'human')
      ) = 0
  );

-- The bullets that one search or render returned.
create table retrievals (
    tenant_id uuid not null,
    id uuid not null,
    scope_id integer not null,
    version integer not null,
    kind text not null,
    query text not null,
    bullet_keys text[] default '{}' not null,
    scores real[] default '{}' not null,
    holdout_candidate text,
    held_out boolean default false not null,
    advice_held_out boolean,
    created_at timestamptz default now() not null,
    constraint retrievals_pkey primary key (tenant_id, id),
    constraint retrievals_kind_check check (kind in ('search', 'render'))
);

create index retrievals_scope_id_created_at_idx on retrievals (tenant_id, scope_id, created_at desc);

-- The curator's decision on a lesson, by the fingerprint of its text, so that the model is not asked again.
create table curated_lessons (
    tenant_id uuid not null,
    scope_id integer not null,
    fingerprint bytea not null,
    decision text not null,
    bullet_id uuid,
    memory_id uuid,
    run_id uuid,
    reason text,
    created_at timestamptz default now() not null,
    updated_at timestamptz default now() not null,
    constraint curated_lessons_pkey primary key (tenant_id, scope_id, fingerprint),
    constraint curated_lessons_tenant_id_scope_id_fkey foreign key(tenant_id, scope_id) references playbooks (tenant_id, scope_id),
    constraint curated_lessons_decision_check check (decision in ('added', 'updated', 'merged', 'already_known', 'waiting', 'proposed', 'rejected'))
);

create index curated_lessons_scope_id_created_at_idx on curated_lessons (tenant_id, scope_id, created_at);
create index curated_lessons_memory_id_idx on curated_lessons (tenant_id, memory_id);

-- The models for which a tenant has vectors: one row, or two or three while it moves from one to another.
create table embedding_models (
    tenant_id uuid not null,
    label text not null,
    provider text not null,
    name text,
    dimensions integer,
    base_url text,
    state text not null,
    state_since timestamptz default now() not null,
    constraint embedding_models_pkey primary key (tenant_id, label),
    constraint embedding_models_state_check check (state in ('active', 'filling', 'retiring'))
);

create unique index embedding_models_active_idx on embedding_models (tenant_id) where state = 'active';
create unique index embedding_models_filling_idx on embedding_models (tenant_id) where state = 'filling';

-- The share of successes among some runs and its 95 % interval (Wilson 1927). All null without runs. It returns a set, because
-- PostgreSQL inlines no other function in FROM.
create function wilson(runs bigint, successes bigint) returns table (rate float8, low float8, high float8)
language sql immutable parallel safe rows 1 as $$
    select share, (share + z * z / (2 * total) - margin) / (1 + z * z / total), (share + z * z / (2 * total) + margin) / (1 + z * z / total)
    from (
        select nullif(runs, 0)::float8 total, successes / nullif(runs, 0)::float8 share, 1.959963984540054::float8 z
    ) sample
    cross join lateral (select z * sqrt(share * (1 - share) / total + z * z / (4 * total * total)) margin) spread
$$;
