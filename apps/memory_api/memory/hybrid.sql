-- Hybrid search over some scopes of one tenant in one round trip: exact BM25 from postings, exact cosine from the covering
-- index, fused, with the rows that are shown. Why it looks like this: docs/decisions/search.md.
--
-- Named parts: `-- :name` begins one, a line `--> name` stands for it (memory/hybrid.py puts them together). The statements
-- are static, so that their generic plans are made once per connection. Joins to the tables are LATERAL … LIMIT 1 and scores
-- meet in GROUP BY: whatever the planner believes about the numbers of rows, it looks up by key and hashes.

-- :named
-- A name that is null stands for every scope of its area.
select array_agg(a.scope), array_agg(a.size), array_agg(a.playbook), sum(a.size) into _scopes, _sizes, _playbooks, _total
from (
    select s.scope,
           (select coalesce(sum(k.delta), 1) from scope_stats k where k.tenant_id = _t and k.scope = s.scope) size,
           case when w.area = 'playbook' then s.name end playbook
    from unnest(_projects, _areas, _names) w(project_id, area, name)
    cross join lateral (
        (select z.scope, z.name from scopes z
         where z.tenant_id = _t and z.project_id = w.project_id and z.area = w.area and z.name = w.name limit 1)
        union all
        select z.scope, z.name from scopes z
        where w.name is null and z.tenant_id = _t and z.project_id = w.project_id and z.area = w.area
    ) s
) a

-- :head
-- The playbook that is searched, as it is now. By both of its keys, so that it is one look-up whichever of them the planner takes.
select b.name, b.version, b.scope,
       jsonb_build_object('sections', b.sections, 'token_budget', b.token_budget, 'holdout', b.holdout)
from playbooks b
where b.tenant_id = _t and b.scope = _scopes[1] and b.project_id = _projects[1] and b.name = _names[1]
  and b.deleted_at is null

-- :meant
-- What section names mean: each spelling of a name that bullets have, and the names behind a slug of the playbooks searched.
with known as (
    select l.name, null slug, false wanted from labels l where l.tenant_id = _t and l.space = 'section'
    union all
    select d.name, d.slug, false
    from unnest(_scopes) s(scope)
    cross join lateral (select k.sections from playbooks k where k.tenant_id = _t and k.scope = s.scope limit 1) b
    cross join lateral jsonb_to_recordset(b.sections) d(name text, slug text)
    union all
    select w.name, null, true from unnest(_sections) w(name)
),
said as (
--> plain
)
select array_agg(distinct a.name) into _section_names
from said a
where a.plain in (select w.plain from said w where w.wanted
                  union all
                  select d.plain from said w join said d on d.slug = w.plain where w.wanted)

-- :plain
-- `normal_name` of playbook/sections.py, by characters and not by the locale of the database; a test compares the two.
    select k.name, k.slug, k.wanted, case w.words when '' then btrim(k.name) when 'other' then 'others' else w.words end plain
    from known k
    cross join lateral (
        select btrim(regexp_replace(replace(lower(k.name), '&', ' and '),
            '[\u0001-\u002f\u003a-\u0040\u005b-\u0060\u007b-\u00a9\u00ab-\u00b1\u00b4\u00b6-\u00b8\u00bb\u00bf\u00d7\u00f7'
            '\u2010-\u206f\u20a0-\u20c0\u2190-\u23ff\u2500-\u2775\u3000-\u3004\u3008-\u3020\u3030\u30fb'
            '\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65]+', '_', 'g'), '_') words
    ) w

-- :hits
-- One row per posting of the query's terms. df is counted by a scan of its own, so that a term's idf is computed once.
select p.n, s.scope, p.weight * i.idf part
from unnest(_scopes, _sizes) s(scope, size)
cross join unnest(_terms, _frequencies) t(term, qf)
cross join lateral (
    select t.qf * ln(1 + (greatest(s.size, c.df) - c.df + 0.5::float8) / (c.df + 0.5::float8)) idf
    from (select count(*) df from postings o where o.tenant_id = _t and o.scope = s.scope and o.term = t.term) c
    offset 0
) i
cross join lateral (
    select o.n, o.weight from postings o
    where o.tenant_id = _t and o.scope = s.scope and o.term = t.term
    offset 0
) p

-- :filters
(_open or (
    (_kinds is null or v.kind = any(_kinds))
    and (_section_ids is null or v.section = any(_section_ids))
    and (_error_ids is null or v.error_category = any(_error_ids))
    and (_tag_ids is null or v.tag_ids && _tag_ids)
    and v.confidence >= _min_confidence and v.importance >= _min_importance
    and (_since is null or v.created_at >= _since)
    and (_until is null or v.created_at <= _until)
))

-- :whole
-- Every row of the scopes gets both scores: one pass over the covering index and one over the postings, met by number.
with scored as materialized (
    select e.n, max(e.vs)::real vs, coalesce(sum(e.part), 0)::real ls
    from (
        select v.n, -(v.emb <#> _q) vs, null::float8 part
        from memory_vectors v
        where v.tenant_id = _t and v.scope = any(_scopes) and v.model = _model_id and
--> filters
        union all
        select h.n, null, h.part from (
--> hits
        ) h
    ) e
    group by e.n
    having max(e.vs) is not null
)
--> fused

-- :nearest
-- The dense leg of large scopes, exact. The order is an expression that no vector index can serve.
select array_agg(d.n), array_agg(-d.distance) into _more, _more_vs
from (
    select v.n, (v.emb <#> _q) + 0 distance
    from memory_vectors v
    where v.tenant_id = _t and v.scope = any(_scanned) and v.model = _model_id and
--> filters
    order by distance
    limit _candidates
) d

-- :candidates
-- Large scopes: the nearest rows and the best worded ones, each with both scores: `worded` has the nearest first.
with worded as materialized (
    select e.n, max(e.scope) scope, max(e.vs) vs, coalesce(sum(e.part), 0) ls
    from (
        select h.n, h.scope, h.part, null::float8 vs from (
--> hits
        ) h
        union all
        select d.n, null, null, d.vs from unnest(_near, _near_vs) d(n, vs)
    ) e
    group by e.n
    order by max(e.vs) is null, ls desc
    limit cardinality(_near) + _candidates * case when _open then 4 else 20 end
),
-- What a row that is not near needs of words to be among the best: so many near ones score as much already, and none of them is
-- farther off than it is. Exact, so it spares look-ups and loses nothing; the small number is the rounding of single precision.
needed as materialized (
    select least(m.ls, m.ls * (k.score - _alpha * greatest(_farthest, 0) / m.vs) / nullif(1 - _alpha, 0) - 1e-4) ls
    from (select nullif(greatest(max(w.vs), 0), 0) vs, nullif(max(w.ls), 0) ls from worded w) m
    cross join lateral (
        select min(b.score) score
        from (select _alpha * greatest(w.vs, 0) / m.vs + (1 - _alpha) * w.ls / m.ls score
              from worded w where w.vs is not null order by score desc limit _width) b
    ) k
    where _bounded
),
scored as materialized (
    select w.n, w.vs::real vs, w.ls::real ls from worded w where w.vs is not null
    union all
    select l.n, d.vs::real, l.ls::real
    from (select w.n, w.scope, w.ls from worded w
          where w.vs is null and w.ls >= coalesce((select d.ls from needed d), 0) offset 0) l
    cross join lateral (
        select -(v.emb <#> _q) vs from memory_vectors v
        where v.tenant_id = _t and v.scope = l.scope and v.model = _model_id and v.n = l.n and
--> filters
        limit 1
    ) d
)
--> fused

-- :indexed
-- The dense leg of scopes that have a vector index of their own. Only a literal tenant lets the planner use it. Scopes without
-- one, filters that keep few of the rows, and indexes that run dry leave the scope to the exact scan.
        _scanned := '{}';
        perform set_config('hnsw.ef_search', '200', true), set_config('hnsw.iterative_scan', 'relaxed_order', true),
                set_config('hnsw.max_scan_tuples', '100000', true);
        for _i in 1 .. cardinality(_scopes) loop
            _more := null;
            _name := format('hansei_hnsw_%s_%s_%s', replace(_t::text, '-', ''), _scopes[_i], _model_id);
            if _sizes[_i] > 25000
               and exists (select from pg_index x where x.indexrelid = to_regclass(_name) and x.indisvalid)
               and (_open or (
--> kept
               ) > 0.05)
            then
                execute format($nearest$
                    select array_agg(d.n), array_agg(d.vs)
                    from (
                        select v.n, -(v.emb::halfvec(%1$s) <#> $1) vs
                        from memory_vectors v
                        where v.tenant_id = %2$L and v.scope = %3$s and v.model = %4$s and ($3 or (
                            ($4 is null or v.kind = any($4))
                            and ($5 is null or v.section = any($5))
                            and ($6 is null or v.error_category = any($6))
                            and ($7 is null or v.tag_ids && $7)
                            and v.confidence >= $8 and v.importance >= $9
                            and ($10 is null or v.created_at >= $10)
                            and ($11 is null or v.created_at <= $11)
                        ))
                        order by v.emb::halfvec(%1$s) <#> $1
                        limit $2
                    ) d $nearest$, vector_dims(_q), _t, _scopes[_i], _model_id)
                into _more, _more_vs
                using _q, _candidates, _open, _kinds, _section_ids, _error_ids, _tag_ids, _min_confidence, _min_importance,
                      _since, _until;
            end if;
            if cardinality(_more) >= _candidates then
                _near := _near || _more;
                _near_vs := _near_vs || _more_vs;
            else
                _scanned := _scanned || _scopes[_i];
            end if;
        end loop;

-- :kept
-- The share of the oldest and the newest rows that a filter keeps: enough to choose between two ways of being right.
select avg(case when
--> filters
       then 1 else 0 end)
from (
    (select o.* from memory_vectors o
     where o.tenant_id = _t and o.scope = _scopes[_i] and o.model = _model_id order by o.n limit 500)
    union all
    (select o.* from memory_vectors o
     where o.tenant_id = _t and o.scope = _scopes[_i] and o.model = _model_id order by o.n desc limit 500)
) v

-- :fused
, edge as materialized (
    select max(s.vs) max_vs, min(s.vs) min_vs, max(s.ls) max_ls, min(s.ls) min_ls,
           -- Without a shared term only the nearest can be among the best: all others have as many rows ahead in both legs.
           (select min(d.vs) from (select r.vs from scored r order by r.vs desc limit _width) d) near_vs
    from scored s
),
placed as (
    select s.n, s.vs, s.ls, null::bigint dense_rank, null::bigint lexical_rank
    from scored s cross join edge e where not _ranked and (s.ls > 0 or s.vs >= e.near_vs)
    union all
    -- A leg ranks what it found: words that are shared, a direction that is, among the nearest where only those were looked for.
    select s.n, s.vs, s.ls,
           case when s.vs > 0 and s.vs >= coalesce(_farthest::real, s.vs) then rank() over (order by s.vs desc) end,
           case when s.ls > 0 then rank() over (order by s.ls desc) end
    from scored s where _ranked
),
weighed as (
    select p.*,
           case _fusion
               when 'anchored' then coalesce(greatest(p.vs, 0) / nullif(greatest(e.max_vs, 0), 0), 0)
               when 'minmax' then coalesce((p.vs - e.min_vs) / nullif(e.max_vs - e.min_vs, 0), 0.5)
               else coalesce(1.0 / (60 + p.dense_rank), 0) end vector_score,
           case _fusion
               when 'anchored' then coalesce(p.ls / nullif(e.max_ls, 0), 0)
               when 'minmax' then coalesce((p.ls - e.min_ls) / nullif(e.max_ls - e.min_ls, 0), 0.5)
               else coalesce(1.0 / (60 + p.lexical_rank), 0) end bm25_score
    from placed p cross join edge e
),
best as materialized (
    select w.*, (_alpha * w.vector_score + (1 - _alpha) * w.bm25_score)::real combined_score
    from weighed w
    order by combined_score desc, w.n desc
    limit _width
)
select b.vector_score::real, b.bm25_score::real, b.combined_score, b.vs, b.ls, b.dense_rank, b.lexical_rank,
       _playbooks[array_position(_scopes, m.scope)],
--> columns
from best b
cross join lateral (select * from memories k where k.tenant_id = _t and k.n = b.n limit 1) m
order by b.combined_score * case when _by_usefulness then 0.5 + m.usefulness else 1 end desc, b.n desc
limit _top_k

-- :listed
-- A query with nothing to look for lists what has the status, the most useful first.
select 0::real, 0::real, 0::real, null::real, null::real, null::bigint, null::bigint,
       _playbooks[array_position(_scopes, m.scope)],
--> columns
from memories m
where m.tenant_id = _t and m.scope = any(_scopes) and m.status = _status
  and (_kinds is null or m.kind = any(_kind_names))
  and (_sections is null or m.section = any(_section_names))
  and (_errors is null or m.error_category = any(_errors))
  and (_tags is null or m.tags && _tags)
  and m.confidence_score::real >= _min_confidence and m.importance::real >= _min_importance -- a bound is in its band
  and (_since is null or m.created_at >= _since)
  and (_until is null or m.created_at <= _until)
order by m.usefulness desc, m.importance desc, m.n desc
limit _top_k

-- :columns
       m.id, m.n, m.scope, m.project_id, m.layer, m.kind, m.key, m.section, m.title, m.when_to_use, m.content,
       m.searchable_text, m.keywords, m.tags, m.importance, m.strength, m.confidence, m.confidence_score, m.usefulness,
       m.helpful, m.harmful, m.neutral, m.witnesses, m.status, m.pinned, m.source, m.error_category, m.outcome,
       m.session_id, m.trace_id, m.source_event_ids, m.metadata, m.terms, m.revision, m.version, m.place, m.created_at,
       m.updated_at

-- :function
create or replace function hansei_search(
    _t uuid, _projects text[], _areas text[], _names text[], _model text, _q halfvec, _terms int[], _frequencies real[],
    _kinds smallint[], _kind_names text[], _sections text[], _errors text[], _tags text[],
    _status text, _min_confidence real, _min_importance real, _since timestamptz, _until timestamptz,
    _fusion text, _alpha float8, _top_k int, _explain boolean, _by_usefulness boolean, _head boolean
) returns table (
    vector_score real, bm25_score real, combined_score real, cosine real, bm25 real, dense_rank bigint, lexical_rank bigint,
    playbook text, id uuid, n bigint, scope int, project_id text, layer text, kind text, key text, section text, title text,
    when_to_use text, content text, searchable_text text, keywords text[], tags text[], importance float8, strength float8,
    confidence float8, confidence_score float8, usefulness float8, helpful int, harmful int, neutral int, witnesses int,
    status text, pinned boolean, source text, error_category text, outcome text, session_id text, trace_id uuid,
    source_event_ids text[], metadata jsonb, terms int[], revision int, version int, place int, created_at timestamptz,
    updated_at timestamptz
) language plpgsql volatile
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
    _bound text := current_setting('hansei.tenant_id', true);
    _scopes int[];
    _sizes bigint[];
    _playbooks text[];
    _total bigint;
    _model_id int;
    _section_names text[];
    _section_ids int[];
    _error_ids int[];
    _tag_ids int[];
    _near bigint[];
    _near_vs float8[];
    _scanned int[];
    _name text;
    _more bigint[];
    _more_vs float8[];
    _farthest float8;
    _bounded boolean;
    _open boolean := num_nonnulls(_kinds, _sections, _errors, _tags, _since, _until) = 0
        and _min_confidence <= 0 and _min_importance <= 0;
    _ranked boolean := _explain or _fusion = 'rrf';
    _width int := case when _by_usefulness then greatest(100, 4 * _top_k) else _top_k end;
    _candidates int := greatest(100, 2 * _top_k);
begin
    -- Bound here, so that the search needs no transaction around it; never from one tenant to another.
    if coalesce(_bound, '') = '' then
        perform set_config('hansei.tenant_id', _t::text, true);
    elsif _bound::uuid <> _t then
        raise exception 'this transaction is bound to another tenant' using errcode = 'insufficient_privilege';
    end if;

--> named
    ;
    if _head then
        for playbook, version, scope, metadata in
--> head
        loop
            return next;
        end loop;
    end if;
    if _scopes is null or _top_k = 0 then
        return;
    end if;

    if _sections is not null then
--> meant
        ;
    end if;
    if _q is null then
        return query
--> listed
        ;
        return;
    end if;

    select l.id into _model_id from labels l where l.tenant_id = _t and l.space = 'model' and l.name = _model;
    if _model_id is null then
        return;
    end if;
    if not _open then
        -- A name nobody ever used has no number, and finds nothing.
        if _sections is not null then
            _section_ids := array(select l.id from labels l
                                  where l.tenant_id = _t and l.space = 'section' and l.name = any(_section_names));
        end if;
        if _errors is not null then
            _error_ids := array(select l.id from labels l
                                where l.tenant_id = _t and l.space = 'error' and l.name = any(_errors));
        end if;
        if _tags is not null then
            _tag_ids := array(select l.id from labels l
                              where l.tenant_id = _t and l.space = 'tag' and l.name = any(_tags));
        end if;
    end if;

    if _total <= 2000 or _fusion = 'minmax' then
        return query
--> whole
        ;
        return;
    end if;

    _scanned := _scopes;
    if _total > 25000 then
--> indexed
    end if;
    if cardinality(_scanned) > 0 then
--> nearest
        ;
        _near := _near || _more;
        _near_vs := _near_vs || _more_vs;
    end if;
    _farthest := (select min(d.vs) from unnest(_near_vs) d(vs));
    -- A vector index may miss near rows; and so many rows must be near as can be the best.
    _bounded := _open and not _ranked and _scanned = _scopes and _width <= _candidates;
    return query
--> candidates
    ;
end $$
