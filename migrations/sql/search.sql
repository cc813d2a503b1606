-- Hybrid search over some scopes of one tenant in one round trip: exact BM25 from postings, exact cosine from the covering
-- index, both fused, with the rows of the results. The reasons for its form are in docs/decisions/search.md.
-- `lexical` is the BM25 score divided by the sum of the query's term weights, so that it is comparable between queries.
--
-- Named parts: `-- :name` begins a part, and migrations/search.py replaces a line `--> name` by it. The statements are static, so
-- that their generic plans are made once per connection. Joins to the tables are LATERAL … LIMIT 1 and scores are combined by GROUP BY:
-- the planner looks up by key and hashes, whatever row counts it assumes.
-- Parameters begin with p_, variables with v_. `dense` is the score of the vector, `lexical` the score of the terms.

-- :function
create or replace function hansei_search(
    p_tenant_id uuid, p_projects text[], p_scope_types text[], p_scope_names text[],
    p_model text, p_query_vector halfvec, p_terms int[], p_frequencies real[],
    p_kind_ids smallint[], p_kinds text[], p_sections text[], p_error_categories text[], p_tags text[],
    p_status text, p_min_confidence real, p_min_importance real, p_since timestamptz, p_until timestamptz,
    p_fusion text, p_alpha float8, p_min_relevance float8, p_top_k int, p_with_ranks boolean, p_rank_by_usefulness boolean, p_with_playbook boolean
) returns table (
    vector_score real, bm25_score real, combined_score real, relevance real, cosine real, bm25 real, dense_rank bigint, lexical_rank bigint,
    playbook text, id uuid, seq bigint, scope_id int, project_id text, layer text, kind text, key text, section text, title text,
    when_to_use text, content text, searchable_text text, keywords text[], tags text[], importance float8,
    confidence float8, confidence_score float8, usefulness float8, helpful int, harmful int, neutral int, observation_count int,
    status text, pinned boolean, source text, error_category text, outcome text, session_id text, trace_id uuid,
    source_event_ids text[], metadata jsonb, terms int[], revision int, playbook_version int, "position" int, created_at timestamptz,
    updated_at timestamptz
) language plpgsql volatile
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
    v_bound_tenant text := current_setting('hansei.tenant_id', true);
    v_scope_ids int[];
    v_scope_sizes bigint[];
    v_playbooks text[];
    v_total_size bigint;
    v_pair_scope_ids int[];
    v_pair_term_ids int[];
    v_pair_weights float8[];
    v_weight_sums float8[];
    v_model_label_id int;
    v_section_names text[];
    v_section_label_ids int[];
    v_error_label_ids int[];
    v_tag_label_ids int[];
    v_nearest bigint[];
    v_nearest_dense float8[];
    v_scanned_scope_ids int[];
    v_index_name text;
    v_more bigint[];
    v_more_dense float8[];
    v_farthest_dense float8;
    v_has_bounds boolean;
    v_is_unfiltered boolean := num_nonnulls(p_kind_ids, p_sections, p_error_categories, p_tags, p_since, p_until) = 0
        and p_min_confidence <= 0 and p_min_importance <= 0;
    v_is_ranked boolean := p_with_ranks or p_fusion = 'rrf';
    v_best_count int := case when p_rank_by_usefulness then greatest(100, 4 * p_top_k) else p_top_k end;
    v_candidate_count int := greatest(100, 2 * p_top_k);
    v_match_count int := v_best_count + 30; -- 30: more look-ups cost more than their better bounds save
begin
    -- The function binds the tenant, so that a search needs no transaction around it. It never switches to another tenant.
    if coalesce(v_bound_tenant, '') = '' then
        perform set_config('hansei.tenant_id', p_tenant_id::text, true);
    elsif v_bound_tenant::uuid <> p_tenant_id then
        raise exception 'this transaction is bound to another tenant' using errcode = 'insufficient_privilege';
    end if;

--> scopes
    ;
    if p_with_playbook then
        for playbook, playbook_version, scope_id, metadata in
--> playbook_header
        loop
            return next;
        end loop;
    end if;
    if v_scope_ids is null or p_top_k = 0 then
        return;
    end if;

    if p_sections is not null then
--> section_names
        ;
    end if;
    if p_query_vector is null then
        return query
--> listing
        ;
        return;
    end if;

    select l.id into v_model_label_id
    from labels l where l.tenant_id = p_tenant_id and l.type = 'model' and l.name = p_model;
    if v_model_label_id is null then
        return;
    end if;
    if not v_is_unfiltered then
        -- A name that was never used has no label and matches nothing.
        if p_sections is not null then
            v_section_label_ids := array(
                select l.id from labels l
                where l.tenant_id = p_tenant_id and l.type = 'section' and l.name = any(v_section_names));
        end if;
        if p_error_categories is not null then
            v_error_label_ids := array(
                select l.id from labels l
                where l.tenant_id = p_tenant_id and l.type = 'error' and l.name = any(p_error_categories));
        end if;
        if p_tags is not null then
            v_tag_label_ids := array(
                select l.id from labels l
                where l.tenant_id = p_tenant_id and l.type = 'tag' and lower(l.name) = any(p_tags));
        end if;
    end if;

    if cardinality(p_terms) > 0 then
--> term_weights
        ;
    end if;

    -- The bounds of the bounded scan come from shared terms, and ranks need all rows or the nearest ones.
    v_has_bounds := not v_is_ranked and p_fusion = 'anchored' and cardinality(p_terms) > 0;
    if p_fusion = 'minmax' or v_total_size <= 500
       or (v_total_size <= 2000 and (not v_has_bounds or v_total_size < 40 * v_best_count)) then
        return query
--> full_scan
        ;
        return;
    end if;

    v_scanned_scope_ids := v_scope_ids;
    if v_total_size > 25000 then
--> vector_index
    end if;
    if v_has_bounds and v_scanned_scope_ids = v_scope_ids then -- no vector index took a scope
        return query
--> bounded_scan
        ;
        return;
    end if;
    if cardinality(v_scanned_scope_ids) > 0 then
--> nearest
        ;
        v_nearest := v_nearest || v_more;
        v_nearest_dense := v_nearest_dense || v_more_dense;
    end if;
    v_farthest_dense := (select min(n.dense) from unnest(v_nearest_dense) n(dense));
    return query
--> candidates
    ;
end $$

-- :scopes
-- A null name selects every scope of its type.
select array_agg(f.id), array_agg(f.size), array_agg(f.playbook), sum(f.size)
into v_scope_ids, v_scope_sizes, v_playbooks, v_total_size
from (
    select s.id,
           (select coalesce(sum(st.delta), 1) from scope_stats st where st.tenant_id = p_tenant_id and st.scope_id = s.id) size,
           case when a.type = 'playbook' then s.name end playbook
    from unnest(p_projects, p_scope_types, p_scope_names) a(project_id, type, name)
    cross join lateral (
        (select o.id, o.name from scopes o
         where o.tenant_id = p_tenant_id and o.project_id = a.project_id and o.type = a.type and o.name = a.name limit 1)
        union all
        select o.id, o.name from scopes o
        where a.name is null and o.tenant_id = p_tenant_id and o.project_id = a.project_id and o.type = a.type
    ) s
) f

-- :playbook_header
-- The searched playbook. The condition contains both of its keys, so any of their indexes answers it with one look-up.
select p.name, p.version, p.scope_id,
       jsonb_build_object('sections', p.sections, 'token_budget', p.token_budget, 'holdout_share', p.holdout_share)
from playbooks p
where p.tenant_id = p_tenant_id and p.scope_id = v_scope_ids[1] and p.project_id = p_projects[1] and p.name = p_scope_names[1]
  and p.deleted_at is null

-- :section_names
-- The spellings of the requested section names: those that bullets use, and the names with a slug of a searched playbook.
with spellings as (
    select l.name, null slug, false wanted from labels l where l.tenant_id = p_tenant_id and l.type = 'section'
    union all
    select d.name, d.slug, false
    from unnest(v_scope_ids) s(id)
    cross join lateral (
        select o.sections from playbooks o where o.tenant_id = p_tenant_id and o.scope_id = s.id limit 1
    ) p
    cross join lateral jsonb_to_recordset(p.sections) d(name text, slug text)
    union all
    select w.name, null, true from unnest(p_sections) w(name)
),
names as (
--> normalized_names
)
select array_agg(distinct n.name) into v_section_names
from names n
where n.plain in (select w.plain from names w where w.wanted
                  union all
                  select d.plain from names w join names d on d.slug = w.plain where w.wanted)

-- :normalized_names
-- `normalize_section_name` of playbooks/sections.py, independent of the locale of the database. A test compares the two.
    select s.name, s.slug, s.wanted, case w.words when '' then btrim(s.name) when 'other' then 'others' else w.words end plain
    from spellings s
    cross join lateral (
        select btrim(regexp_replace(replace(lower(s.name), '&', ' and '),
            '[\u0001-\u002f\u003a-\u0040\u005b-\u0060\u007b-\u00a9\u00ab-\u00b1\u00b4\u00b6-\u00b8\u00bb\u00bf\u00d7\u00f7'
            '\u2010-\u206f\u20a0-\u20c0\u2190-\u23ff\u2500-\u2775\u3000-\u3004\u3008-\u3020\u3030\u30fb'
            '\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65]+', '_', 'g'), '_') words
    ) w

-- :term_weights
-- The weight of each term in each scope: frequency in the query times idf. One scan counts the postings of a term.
with weights as (
    select s.number, s.id scope_id, t.id term_id,
           t.frequency * ln(1 + (greatest(s.size, c.count) - c.count + 0.5::float8) / (c.count + 0.5::float8)) weight
    from unnest(v_scope_ids, v_scope_sizes) with ordinality s(id, size, number)
    cross join unnest(p_terms, p_frequencies) t(id, frequency)
    cross join lateral (
        select count(*) count from postings o where o.tenant_id = p_tenant_id and o.scope_id = s.id and o.term_id = t.id
    ) c
),
sums as (select w.number, sum(w.weight) weight from weights w group by w.number)
select array_agg(w.scope_id), array_agg(w.term_id), array_agg(w.weight / s.weight),
       (select array_agg(o.weight order by o.number) from sums o)
into v_pair_scope_ids, v_pair_term_ids, v_pair_weights, v_weight_sums
from weights w join sums s using (number)

-- :hits
-- One row per posting of the query's terms.
select p.seq, w.scope_id, p.weight * w.weight part
from unnest(v_pair_scope_ids, v_pair_term_ids, v_pair_weights) w(scope_id, term_id, weight)
cross join lateral (
    select o.seq, o.weight from postings o
    where o.tenant_id = p_tenant_id and o.scope_id = w.scope_id and o.term_id = w.term_id
    offset 0
) p

-- :filters
(v_is_unfiltered or (
    (p_kind_ids is null or v.kind_id = any(p_kind_ids))
    and (v_section_label_ids is null or v.section_label_id = any(v_section_label_ids))
    and (v_error_label_ids is null or v.error_label_id = any(v_error_label_ids))
    and (v_tag_label_ids is null or v.tag_label_ids && v_tag_label_ids)
    and v.confidence >= p_min_confidence and v.importance >= p_min_importance
    and (p_since is null or v.created_at >= p_since)
    and (p_until is null or v.created_at <= p_until)
))

-- :full_scan
-- Every row of the scopes gets both scores: one pass over the covering index and one over the postings, joined by `seq`.
with scored as materialized (
    select e.seq, max(e.dense)::real dense, coalesce(sum(e.part), 0)::real lexical
    from (
        select v.seq, -(v.embedding <#> p_query_vector) dense, null::float8 part
        from memory_vectors v
        where v.tenant_id = p_tenant_id and v.scope_id = any(v_scope_ids) and v.model_label_id = v_model_label_id and
--> filters
        union all
        select h.seq, null, h.part from (
--> hits
        ) h
    ) e
    group by e.seq
    having max(e.dense) is not null
)
--> fusion

-- :bounded_scan
-- Large scopes: as the full scan, but only of rows that can be among the v_best_count best. The rows with the best terms get their
-- vector scores first. `bounds` follows from them: a further row below it has a lower combined score than v_best_count of
-- these rows. So the pass over the vectors keeps few rows and loses no result.
with words as materialized (
    select h.seq, max(h.scope_id) scope_id, sum(h.part) lexical from (
--> hits
    ) h
    group by h.seq
),
matches as materialized (
    select w.* from words w order by w.lexical desc limit v_match_count
),
near_matches as materialized (
    select w.seq, w.lexical, d.dense
    from matches w
    cross join lateral (
        select -(v.embedding <#> p_query_vector) dense from memory_vectors v
        where v.tenant_id = p_tenant_id and v.scope_id = w.scope_id and v.model_label_id = v_model_label_id and v.seq = w.seq and
--> filters
        limit 1
    ) d
),
-- A further row has at most the lexical score of the last match. 1e-4 covers rounding to single precision.
bounds as materialized (
    select (min(b.score) - (1 - p_alpha) * least(max(b.last_lexical), 1)) / greatest(p_alpha, 1e-9) - 1e-4 dense
    from (
        select p_alpha * greatest(n.dense, 0) + (1 - p_alpha) * least(n.lexical, 1) score,
               (select case when count(*) < v_match_count then 0 else min(w.lexical) end from matches w) last_lexical
        from near_matches n
        order by 1 desc
        limit v_best_count
    ) b
    having count(*) = v_best_count
),
-- The rows that may be among the best: usually less than a hundred. Only they are grouped, with their lexical scores.
retained as materialized (
    select n.seq, n.dense from near_matches n
    union all
    select v.seq, -(v.embedding <#> p_query_vector)
    from memory_vectors v
    where v.tenant_id = p_tenant_id and v.scope_id = any(v_scope_ids) and v.model_label_id = v_model_label_id
      and -(v.embedding <#> p_query_vector) >= coalesce((select b.dense from bounds b), '-infinity') and
--> filters
),
scored as materialized (
    select e.seq, max(e.dense)::real dense, max(e.lexical)::real lexical
    from (
        select r.seq, r.dense, 0 lexical from retained r
        union all
        select w.seq, null, w.lexical from words w where w.seq in (select r.seq from retained r)
    ) e
    group by e.seq
)
--> fusion

-- :nearest
-- The dense leg of large scopes, exact. The order is an expression that no vector index can serve.
select array_agg(n.seq), array_agg(-n.distance) into v_more, v_more_dense
from (
    select v.seq, (v.embedding <#> p_query_vector) + 0 distance
    from memory_vectors v
    where v.tenant_id = p_tenant_id and v.scope_id = any(v_scanned_scope_ids) and v.model_label_id = v_model_label_id and
--> filters
    order by distance
    limit v_candidate_count
) n

-- :candidates
-- Large scopes, with ranks or a vector index: the nearest rows and those with the best terms, each with both scores. `matches`
-- contains the nearest rows first.
with matches as materialized (
    select e.seq, max(e.scope_id) scope_id, max(e.dense) dense, coalesce(sum(e.part), 0) lexical
    from (
        select h.seq, h.scope_id, h.part, null::float8 dense from (
--> hits
        ) h
        union all
        select n.seq, null, null, n.dense from unnest(v_nearest, v_nearest_dense) n(seq, dense)
    ) e
    group by e.seq
    order by max(e.dense) is null, lexical desc
    limit cardinality(v_nearest) + v_candidate_count * case when v_is_unfiltered then 4 else 20 end
),
scored as materialized (
    select w.seq, w.dense::real dense, w.lexical::real lexical from matches w where w.dense is not null
    union all
    select l.seq, d.dense::real, l.lexical::real
    from (select w.seq, w.scope_id, w.lexical from matches w
          where w.dense is null offset 0) l
    cross join lateral (
        select -(v.embedding <#> p_query_vector) dense from memory_vectors v
        where v.tenant_id = p_tenant_id and v.scope_id = l.scope_id and v.model_label_id = v_model_label_id and v.seq = l.seq and
--> filters
        limit 1
    ) d
)
--> fusion

-- :vector_index
-- The dense leg of scopes that have a vector index of their own. The planner uses it only with a literal tenant. The exact scan
-- handles a scope without an index, a filter that few rows match, and an index scan with too few results.
        v_scanned_scope_ids := '{}';
        perform set_config('hnsw.ef_search', '200', true), set_config('hnsw.iterative_scan', 'relaxed_order', true),
                set_config('hnsw.max_scan_tuples', '100000', true);
        for v_number in 1 .. cardinality(v_scope_ids) loop
            v_more := null;
            v_index_name := format('hansei_hnsw_%s_%s_%s', replace(p_tenant_id::text, '-', ''), v_scope_ids[v_number],
                                   v_model_label_id);
            if v_scope_sizes[v_number] > 25000
               and exists (select from pg_index i where i.indexrelid = to_regclass(v_index_name) and i.indisvalid)
               and (v_is_unfiltered or (
--> filter_share
               ) > 0.05)
            then
                execute format($nearest$
                    select array_agg(n.seq), array_agg(n.dense)
                    from (
                        select v.seq, -(v.embedding::halfvec(%1$s) <#> $1) dense
                        from memory_vectors v
                        where v.tenant_id = %2$L and v.scope_id = %3$s and v.model_label_id = %4$s and ($3 or (
                            ($4 is null or v.kind_id = any($4))
                            and ($5 is null or v.section_label_id = any($5))
                            and ($6 is null or v.error_label_id = any($6))
                            and ($7 is null or v.tag_label_ids && $7)
                            and v.confidence >= $8 and v.importance >= $9
                            and ($10 is null or v.created_at >= $10)
                            and ($11 is null or v.created_at <= $11)
                        ))
                        order by v.embedding::halfvec(%1$s) <#> $1
                        limit $2
                    ) n $nearest$, vector_dims(p_query_vector), p_tenant_id, v_scope_ids[v_number], v_model_label_id)
                into v_more, v_more_dense
                using p_query_vector, v_candidate_count, v_is_unfiltered, p_kind_ids, v_section_label_ids, v_error_label_ids,
                      v_tag_label_ids, p_min_confidence, p_min_importance, p_since, p_until;
            end if;
            if cardinality(v_more) >= v_candidate_count then
                v_nearest := v_nearest || v_more;
                v_nearest_dense := v_nearest_dense || v_more_dense;
            else
                v_scanned_scope_ids := v_scanned_scope_ids || v_scope_ids[v_number];
            end if;
        end loop;

-- :filter_share
-- The share of the oldest and the newest rows that match the filters. Precise enough to choose between two exact methods.
select avg(case when
--> filters
       then 1 else 0 end)
from (
    (select o.* from memory_vectors o
     where o.tenant_id = p_tenant_id and o.scope_id = v_scope_ids[v_number] and o.model_label_id = v_model_label_id
     order by o.seq limit 500)
    union all
    (select o.* from memory_vectors o
     where o.tenant_id = p_tenant_id and o.scope_id = v_scope_ids[v_number] and o.model_label_id = v_model_label_id
     order by o.seq desc limit 500)
) v

-- :fusion
, limits as materialized (
    select max(s.dense) max_dense, min(s.dense) min_dense, max(s.lexical) max_lexical, min(s.lexical) min_lexical,
           -- A row without a shared term can only be among the best if it is near: otherwise as many rows precede it in both scores.
           (select min(d.dense) from (select r.dense from scored r order by r.dense desc limit v_best_count) d) near_dense
    from scored s
),
ranks as (
    select s.seq, s.dense, s.lexical, null::bigint dense_rank, null::bigint lexical_rank
    from scored s cross join limits l where not v_is_ranked and (s.lexical > 0 or s.dense >= l.near_dense)
    union all
    -- A row has a rank only for the scores that found it: shared terms, or a positive cosine among the nearest rows.
    select s.seq, s.dense, s.lexical,
           case when s.dense > 0 and s.dense >= coalesce(v_farthest_dense::real, s.dense)
                then rank() over (order by s.dense desc) end,
           case when s.lexical > 0 then rank() over (order by s.lexical desc) end
    from scored s where v_is_ranked
),
scaled as (
    select r.*,
           (0.3 * greatest(r.dense, 0) + 0.7 * least(r.lexical, 1))::real relevance, -- RELEVANCE_ALPHA of memories/search/query.py
           case p_fusion
               when 'anchored' then least(greatest(r.dense, 0), 1)
               when 'minmax' then coalesce((r.dense - l.min_dense) / nullif(l.max_dense - l.min_dense, 0), 0.5)
               else coalesce(1.0 / (60 + r.dense_rank), 0) end vector_score,
           case p_fusion
               when 'anchored' then least(r.lexical, 1)
               when 'minmax' then coalesce((r.lexical - l.min_lexical) / nullif(l.max_lexical - l.min_lexical, 0), 0.5)
               else coalesce(1.0 / (60 + r.lexical_rank), 0) end bm25_score
    from ranks r cross join limits l
),
best as materialized (
    select s.*, (p_alpha * s.vector_score + (1 - p_alpha) * s.bm25_score)::real combined_score
    from scaled s
    where s.relevance >= p_min_relevance
    order by combined_score desc, s.lexical desc, s.seq desc
    limit v_best_count
)
select b.vector_score::real, b.bm25_score::real, b.combined_score, b.relevance, b.dense,
       (b.lexical * coalesce(v_weight_sums[array_position(v_scope_ids, m.scope_id)], 0))::real, b.dense_rank, b.lexical_rank,
       v_playbooks[array_position(v_scope_ids, m.scope_id)],
--> columns
from best b
cross join lateral (select * from memories o where o.tenant_id = p_tenant_id and o.seq = b.seq limit 1) m
order by b.combined_score * case when p_rank_by_usefulness then 0.5 + m.usefulness else 1 end desc, b.lexical desc, b.seq desc
limit p_top_k

-- :listing
-- A query without text lists the memories with the status, the most useful first.
select 0::real, 0::real, 0::real, 0::real, null::real, null::real, null::bigint, null::bigint,
       v_playbooks[array_position(v_scope_ids, m.scope_id)],
--> columns
from memories m
where m.tenant_id = p_tenant_id and m.scope_id = any(v_scope_ids) and m.status = p_status
  and (p_kind_ids is null or m.kind = any(p_kinds))
  and (p_sections is null or m.section = any(v_section_names))
  and (p_error_categories is null or m.error_category = any(p_error_categories))
  and (p_tags is null or exists (select from unnest(m.tags) tag where lower(tag) = any(p_tags)))
  and m.confidence_score::real >= p_min_confidence and m.importance::real >= p_min_importance -- real, as in the index
  and (p_since is null or m.created_at >= p_since)
  and (p_until is null or m.created_at <= p_until)
order by m.usefulness desc, m.importance desc, m.seq desc
limit p_top_k

-- :columns
       m.id, m.seq, m.scope_id, m.project_id, m.layer, m.kind, m.key, m.section, m.title, m.when_to_use, m.content,
       m.searchable_text, m.keywords, m.tags, m.importance, m.confidence, m.confidence_score, m.usefulness,
       m.helpful, m.harmful, m.neutral, m.observation_count, m.status, m.pinned, m.source, m.error_category, m.outcome,
       m.session_id, m.trace_id, m.source_event_ids, m.metadata, m.terms, m.revision, m.playbook_version, m.position,
       m.created_at, m.updated_at
