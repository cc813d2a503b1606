alter table pgqueuer reset (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay);
create index pgqueuer_ep_prio_id_idx on pgqueuer (entrypoint, priority desc, id) where status = 'queued';
create index pgqueuer_priority_id_id1_idx on pgqueuer (priority, id desc) include (id) where status = 'queued';
create index pgqueuer_updated_id_id1_idx on pgqueuer (updated, id desc) include (id) where status = 'picked';
drop index pgqueuer_turns_idx;
alter table pgqueuer drop column lane;
