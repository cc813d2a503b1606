-- Where a bullet comes from: the links that lead from it to memories and traces, at most eight steps, each place once.
with recursive origin(id, relation, target_kind, target_id, depth) as (
    select l.source_id, l.relation, l.target_kind, l.target_id, 1
    from memory_links l
    where l.tenant_id = :tenant and l.source_id = :bullet and l.relation in ('derived_from', 'supersedes')
    union
    select l.source_id, l.relation, l.target_kind, l.target_id, o.depth + 1
    from origin o join memory_links l on l.tenant_id = :tenant and l.source_id = o.target_id
    where o.target_kind = 'memory' and o.depth < 8 and l.relation in ('derived_from', 'supersedes')
)
select o.id source_id, o.relation, o.target_kind, o.target_id, min(o.depth) depth,
       m.kind, m.key, m.content, m.source_event_ids, coalesce(m.trace_id, t.id) trace_id, t.task_description, t.outcome,
       (select jsonb_agg(jsonb_build_object('event_id', e.event_id, 'seq', e.seq, 'event_type', e.event_type,
                                            'content', left(e.content, 2000)) order by e.seq)
        from trace_events e
        where e.tenant_id = :tenant and e.trace_id = m.trace_id and e.event_id = any(m.source_event_ids)) events
from origin o
left join memories m on m.tenant_id = :tenant and m.id = o.target_id and o.target_kind = 'memory'
left join traces t on t.tenant_id = :tenant and t.id = o.target_id and o.target_kind = 'trace'
group by o.id, o.relation, o.target_kind, o.target_id, m.kind, m.key, m.content, m.source_event_ids, m.trace_id, t.id,
         t.task_description, t.outcome
order by depth, o.target_kind, o.target_id
