-- The history trigger as 0002 made it.
drop trigger memory_keep_update on memories;

create or replace function memory_keep() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
    insert into public.memory_revisions (tenant_id, memory_id, revision, version, scope, key, section, title, when_to_use, content,
                                         keywords, tags, importance, status, pinned, reason, actor, run_id)
    values (new.tenant_id, new.id, new.revision, new.version, new.scope, new.key, new.section, new.title, new.when_to_use, new.content,
            new.keywords, new.tags, new.importance, new.status, new.pinned, new.change_reason, new.change_actor, new.change_run);
    return null;
end $$;

create trigger memory_keep_update after update on memories for each row
when (old.revision is distinct from new.revision) execute function memory_keep();

create index memory_revisions_version_idx on memory_revisions (tenant_id, memory_id, version) where version is not null;

drop table bullet_spans;
