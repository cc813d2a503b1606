-- The history trigger as 0001 made it.
drop trigger memory_revise on memories;

create or replace function memory_revise() returns trigger language plpgsql as $$
begin
    new.revision := old.revision + 1;
    new.updated_at := now();
    return new;
end $$;

create trigger memory_revise before update on memories for each row
when ((old.content, old.when_to_use, old.title, old.section, old.status, old.tags, old.importance, old.key, old.pinned)
      is distinct from
      (new.content, new.when_to_use, new.title, new.section, new.status, new.tags, new.importance, new.key, new.pinned))
execute function memory_revise();

create or replace function memory_keep() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
    insert into public.memory_revisions (tenant_id, memory_id, revision, scope, key, section, title, when_to_use, content,
                                         tags, importance, status, pinned, reason, actor, run_id)
    values (new.tenant_id, new.id, new.revision, new.scope, new.key, new.section, new.title, new.when_to_use, new.content,
            new.tags, new.importance, new.status, new.pinned, new.change_reason, new.change_actor, new.change_run);
    return null;
end $$;

drop index memory_revisions_changed_idx;

drop index memory_revisions_version_idx;

alter table memory_revisions drop column keywords;

alter table memory_revisions drop column version;

alter table memories drop column place;

alter table memories drop column version;
